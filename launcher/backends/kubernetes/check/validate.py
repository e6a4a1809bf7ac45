"""Whether a cluster will accept an object, answered offline, before anything is sent or paid for.

Three things are checked: the strict schema of the kind in the chosen version of Kubernetes, for the kinds that we
render and ship what API server and webhooks refuse beyond it (`rules`), and house policies (`policies`), each of which
can be switched off by its name. An object of a kind that has no schema here is passed over. All errors are reported
together, as `file:line:col: path: what; allowed: ...`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final, NamedTuple

from launcher.backends.kubernetes import names, schemas
from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.files import read
from launcher.backends.kubernetes.check.forms import (
    LABEL,
    LABEL_1035,
    SEGMENT,
    SUBDOMAIN,
    Form,
    Say,
    items,
    mapping,
    string,
)
from launcher.backends.kubernetes.check.rules import has_rules, rule_of
from launcher.backends.kubernetes.check.rules.containers import DIGEST
from launcher.backends.kubernetes.check.rules.pods import mounts
from launcher.backends.kubernetes.check.rules.workloads import unjudged
from launcher.backends.kubernetes.check.security import DEFAULT, LEVELS, pod_security
from launcher.backends.kubernetes.check.strict import Compiler, SchemaFinding, SchemaFindings
from launcher.errors import Problem
from launcher.spec.read.load import looks_like_job
from launcher.spec.values.problems import Problems, near, one_line, show
from launcher.spec.values.source import Route, YamlDocument, dotted

MAX_OBJECT: Final = 1_572_864  # bytes that etcd takes in one request
ENFORCE: Final = "pod-security.kubernetes.io/enforce"
# files beside manifests that are never sent to an API server
OTHERS: Final = ("kind.x-k8s.io", "kustomize.config.k8s.io", "config.kueue.x-k8s.io", "config.jobset.x-k8s.io")
# groups that Kubernetes served once
_GONE: Final = {"extensions"}
# kinds that need a spec, although no schema says so
SPECS: Final = (
    *("Pod", "Service", "PersistentVolumeClaim", "Job", "CronJob", "Deployment", "DaemonSet", "StatefulSet", "JobSet"),
    *("HorizontalPodAutoscaler", "ClusterQueue"),
)
_FORMS: Final[dict[str, Form]] = {
    "Namespace": LABEL,
    "Service": LABEL_1035,
    **dict.fromkeys(("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"), SEGMENT),
}


class CheckPolicy(NamedTuple):
    """Requirements beyond those of a cluster.

    level    of Pod Security, for namespaces that set none themselves
    without  names of house policies that are switched off
    patch    the objects are parts of objects, as kustomize merges them: only fields and types are checked
    """

    level: str = DEFAULT
    without: frozenset[str] = frozenset()
    patch: bool = False


STRICT: Final = CheckPolicy()
NO_POLICY: Final = CheckPolicy(without=frozenset(policies.ALL))  # only what a cluster refuses


def problems(documents: Mapping[str, str], version: str = schemas.DEFAULT, policy: CheckPolicy = STRICT) -> list[str]:
    """File name -> YAML: one line for each error, ordered by place; empty when there is none.

    Raises BadInput when there are no schemas of that version.
    """
    return [str(problem) for problem in check(documents, version, policy)]


def check(
    documents: Mapping[str, str],
    version: str = schemas.DEFAULT,
    policy: CheckPolicy = STRICT,
    own: Mapping[str, CheckPolicy] | None = None,
) -> list[Problem]:
    """As `problems`, but returns each error with its place. `own`: file name -> its own policy, where it has one."""
    problems = Problems()
    judge(read(documents, problems), problems, version, policy, own or {})
    return sorted(problems.found)


def judge(
    documents: Iterable[YamlDocument],
    problems: Problems,
    version: str,
    policy: CheckPolicy,
    own: Mapping[str, CheckPolicy],
) -> None:
    """Reports errors in documents that were read. A namespace among them sets the level of its own objects."""
    all_objects = [entry for document in documents for entry in objects(document)]
    levels = _levels((value for _, _, value in all_objects), policy.level)
    places: dict[tuple[str, ...], tuple[str, int, int]] = {}
    for document, route, value in all_objects:
        own_policy = own.get(document.file, policy)
        for item in findings(value, version, own_policy, levels):
            file, line, column = document.place((*route, *item.route), key=item.key)
            problems.add(file, line, column, dotted((*route, *item.route)), item.named, item.allowed)
        if "kind" in value and not own_policy.patch and policies.REPEATED not in own_policy.without:
            identity = (document.file, string(value, "apiVersion"), string(value, "kind"), *_named(value))
            place = document.place(route)
            if identity in places:
                message = f"{identity[2]} `{identity[4]}` is in this file already, on line {places[identity][1]}"
                problems.add(*place, dotted(route), policies.named(message, policies.REPEATED), "each object once")
            places.setdefault(identity, place)


def findings(
    value: Mapping[str, Any],
    version: str = schemas.DEFAULT,
    policy: CheckPolicy = STRICT,
    levels: Mapping[str, str] | None = None,
) -> list[SchemaFinding]:
    """All errors in one object, given as plain data; none in one of a kind that is passed over. `levels`: namespace ->
    its Pod Security level."""
    return [item for item in _findings(value, version, policy, levels) if item.policy not in policy.without]


def _findings(
    value: Mapping[str, Any], version: str, policy: CheckPolicy, levels: Mapping[str, str] | None
) -> list[SchemaFinding]:
    api, kind = value.get("apiVersion"), str(value.get("kind"))
    group = api.rpartition("/")[0] if isinstance(api, str) else ""
    if group in OTHERS:
        return []
    if api is None and value.get("kind") is None and looks_like_job(value):
        told = "manifests; `launcher render` makes one of a job, `launcher submit --dry-run` checks the job"
        return [SchemaFinding((), "is a job, not a manifest", told)]
    absent = [field for field in ("apiVersion", "kind") if not isinstance(value.get(field), str)]
    if absent or passed_over(value, version):
        return [SchemaFinding((), f"`{field}` is missing", "", key=True) for field in absent]
    known, compiler = compiled(version, ruled=not policy.patch)
    name = known.kinds.get(f"{api}/{kind}")
    if name is None:
        return [_unknown(str(api), kind, known.builtin)]
    results: SchemaFindings = []
    compiler.named(name)(value, (), results)
    if policy.patch:
        results += _inner(value, compiler, results, version, whole=False)
        return [item for item in results if not item.what.endswith("` is missing") and not _directive(item)]
    say = Say(results, numbers(version))
    _metadata(say, value, f"{api}/{kind}" in known.cluster, kind)
    if kind in SPECS and "spec" not in value:
        say.missing("spec")
    if kind == "JobSet":
        results += _inner(value, compiler, results, version)
    else:
        claims = [string(mapping(claim, "metadata"), "name") for _, claim in items(value, "spec.volumeClaimTemplates")]
        for route, template in templates(value):
            mounts(say.into(*route, "spec"), mapping(template, "spec"), claims)
    if f"{api}/{kind}" in known.builtin:
        results[:] = [_judged(item, kind, say.version) for item in results]
    level = (levels or {}).get(string(mapping(value, "metadata"), "namespace"), policy.level)
    for route, template in templates(value):
        pod_security(say.into(*route), template, level)
        _pinned(say.into(*route), template)
    _queue(say, value)
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace"))
    if size > MAX_OBJECT:
        say("", f"{size:,} bytes", f"at most {MAX_OBJECT:,} in etcd")
    return results


def passed_over(value: Mapping[str, Any], version: str = schemas.DEFAULT) -> str:
    """Why an object is not checked; empty where it is. A kind of Kubernetes itself that does not exist is an error."""
    api, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(api, str) or not isinstance(kind, str):
        return ""
    known, _ = compiled(version, ruled=True)
    name, group = f"{api}/{kind}", api.rpartition("/")[0]
    if name in known.kinds:
        return ""
    if name in known.unchecked:
        return "alpha or beta, which a cluster serves only where it is switched on"
    if group in OTHERS:
        return "a configuration file, which is sent to no cluster"
    if group in {builtin.rpartition("/")[0].rpartition("/")[0] for builtin in known.builtin} | _GONE:
        return ""
    return f"there is no schema of it here{near(name, known.kinds)}"


def templates(value: Mapping[str, Any]) -> Iterator[tuple[Route, Mapping[str, Any]]]:
    """The pod templates of an object; a Pod is its own template."""
    kind = value.get("kind")
    if kind == "Pod":
        yield (), value
    elif kind in ("Job", "Deployment", "DaemonSet", "StatefulSet"):
        yield ("spec", "template"), mapping(value, "spec", "template")
    elif kind == "CronJob":
        yield ("spec", "jobTemplate", "spec", "template"), mapping(value, "spec", "jobTemplate", "spec", "template")
    elif kind == "JobSet":
        for at, job in items(mapping(value, "spec"), "replicatedJobs", ("spec",)):
            yield (*at, "template", "spec", "template"), mapping(job, "template", "spec", "template")


def _inner(
    value: Mapping[str, Any], compiler: Compiler, found: SchemaFindings, version: str, *, whole: bool = True
) -> SchemaFindings:
    """Errors in the Jobs inside a JobSet. The JobSet's schema and its webhook take what a Job's refuse, and then the
    cluster refuses each such Job. `whole`: it is no part of an object."""
    more: SchemaFindings = []
    for at, job in items(value, "spec.replicatedJobs") if value.get("kind") == "JobSet" else ():
        route, spec = (*at, "template", "spec"), mapping(job, "template").get("spec")
        if isinstance(spec, dict):
            pods = mapping(spec, "template", "spec")
            if pods and not string(pods, "restartPolicy"):  # JobSet's default
                spec = spec | {"template": spec["template"] | {"spec": pods | {"restartPolicy": "OnFailure"}}}
            compiler.named("io.k8s.api.batch.v1.JobSpec")(spec, route, more)
            if whole:
                mounts(Say(more, numbers(version), (*route, "template", "spec")), pods)
    said = {(item.route, item.what) for item in found}
    routes = {item.route for item in found}
    more = [item for item in more if (item.route, item.what) not in said and (item.judged or item.route not in routes)]
    more = [_judged(item, "Job", numbers(version)) for item in more]
    return [item if item.policy else item._replace(policy=policies.NEVER_STARTS) for item in more]


def _judged(item: SchemaFinding, kind: str, version: tuple[int, int]) -> SchemaFinding:
    """The finding, under the house policy that it breaks where the server of that version takes the object."""
    if item.judged and not item.policy and (policy := unjudged(kind, item.route, version)):
        return item._replace(policy=policy)
    return item


@cache
def compiled(version: str, *, ruled: bool) -> tuple[schemas.Schemas, Compiler]:
    """The schemas of a version, and their checks: with or without the rules of its server."""
    known = schemas.load(version)
    rules = partial(rule_of, version=numbers(version)) if ruled else lambda name: None
    return known, Compiler(known.definitions, rules)


def numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)


def _unknown(api: str, kind: str, kinds: Iterable[str]) -> SchemaFinding:
    """The error about a kind in a group of Kubernetes that has no such kind, or no such version."""
    same = sorted(entry.rpartition("/")[0] for entry in kinds if entry.rpartition("/")[2] == kind)
    if same:
        return SchemaFinding(("apiVersion",), f"{show(api)} has no {kind}{near(api, same)}", ", ".join(same))
    hint = near(kind, {entry.rpartition("/")[2] for entry in kinds if entry.startswith(f"{api}/")})
    return SchemaFinding(("kind",), f"{show(kind)} of {show(api)} is not known here{hint}")


def _directive(item: SchemaFinding) -> bool:
    """Whether a finding is about `$patch: delete` or similar, which kustomize removes."""
    return bool(item.route) and str(item.route[-1]).startswith("$")


def objects(document: YamlDocument) -> Iterator[tuple[YamlDocument, Route, dict[str, Any]]]:
    """The objects of a document: the document itself, or the items of a List."""
    value = document.value
    if isinstance(value, dict) and value.get("kind") == "List" and value.get("apiVersion") == "v1":
        for index, item in enumerate(value.get("items") or ()):
            yield document, ("items", index), item if isinstance(item, dict) else {}
    elif isinstance(value, dict):
        yield document, (), value


def _levels(values: Iterable[Mapping[str, Any]], default: str) -> dict[str, str]:
    """The enforced Pod Security level of every namespace among the objects; the default where it sets none."""
    levels = {}
    for value in values:
        if value.get("kind") == "Namespace":
            level = mapping(value, "metadata", "labels").get(ENFORCE)
            levels[string(mapping(value, "metadata"), "name")] = level if level in LEVELS else default
    return levels


def _named(value: Mapping[str, Any]) -> tuple[str, str]:
    metadata = mapping(value, "metadata")
    return string(metadata, "namespace"), string(metadata, "name")


def _metadata(say: Say, value: Mapping[str, Any], cluster: bool, kind: str) -> None:
    metadata, at = mapping(value, "metadata"), say.into("metadata")
    if "generateName" in metadata:
        message = "`kubectl apply` and GitOps need a fixed name, and a new one would run the same thing again"
        at("generateName", message, "metadata.name", key=True, policy=policies.FIXED_NAMES)
    if "name" in metadata:
        relaxed = kind == "Service" and say.version >= (1, 36)  # RelaxedServiceNameValidation, on by default since then
        at.form("name", metadata["name"], LABEL if relaxed else _FORMS.get(kind, SUBDOMAIN))
    elif "generateName" not in metadata and isinstance(value.get("metadata"), dict):
        at.missing("name")
    if "namespace" in metadata and cluster:
        message = f"a {kind} lies in no namespace"
        at("namespace", message, "leave it out", key=True, policy=policies.NO_EFFECT)
    elif "namespace" in metadata:
        at.form("namespace", metadata["namespace"], LABEL)


def _pinned(say: Say, template: Mapping[str, Any]) -> None:
    for at, container in say.each(template, "spec.initContainers", "spec.containers"):
        image = container.get("image")
        if isinstance(image, str) and DIGEST.search(image) is None:
            message = f"{show(image)} names no digest, so it may be another image tomorrow"
            at("image", message, "name@sha256:...", policy=policies.DIGESTS)


def _queue(say: Say, value: Mapping[str, Any]) -> None:
    """Rules for objects in one of Kueue's queues: Kueue counts requests, and sets `suspend` itself."""
    queue = mapping(value, "metadata", "labels").get(names.QUEUE)
    if queue is None:
        return
    at = ("metadata", "labels", names.QUEUE)
    if queue == "":
        say(at, "names no queue", "the name of a LocalQueue")
    else:
        say.form(at, queue, SUBDOMAIN)
    if "suspend" in mapping(value, "spec"):
        say(("spec", "suspend"), "is Kueue's to set", "leave it out", key=True, policy=policies.QUEUES)
    for route, template in templates(value):
        for where, container in say.into(*route).each(template, "spec.containers"):
            asked = {**mapping(container, "resources", "limits"), **mapping(container, "resources", "requests")}
            if "cpu" not in asked:
                message = "asks for no cpu, and Kueue counts requests"
                where("", message, "resources.requests.cpu", key=True, policy=policies.QUEUES)


_ASK: Final = "`kubectl apply --dry-run=server` asks your cluster"


class Coverage(NamedTuple):
    """
    objects      how many were checked
    ruled        kinds that were checked by schema and by rules
    schema_only  kinds that were checked by their schema alone
    passed_over  a line for each object that was not checked: place, kind, reason
    policies     names of the house policies that were applied
    """

    objects: int
    ruled: list[str]
    schema_only: list[str]
    passed_over: list[str]
    policies: list[str]

    def sentence(self, version: str) -> str:
        """The result of a check that found nothing."""
        plural = "" if self.objects == 1 else "s"
        lines = [f"{self.objects} object{plural}: no errors"]
        if self.objects:
            by_schema = f"the schemas of Kubernetes {version} and of the operators listed in the documentation"
            rules = f", our rules for {', '.join(self.ruled)}" if self.ruled else ""
            house = f", the house policies {', '.join(self.policies)}" if self.policies else ", no house policy"
            lines.append(f"checked: {by_schema}{rules}{house}")
        missing = [f"the server's rules for {', '.join(self.schema_only)}"] if self.schema_only else []
        missing += [f"what was passed over ({len(self.passed_over)})"] if self.passed_over else []
        missing += ["admission webhooks, quotas, permissions, and whether the objects exist that these name"]
        lines.append(f"not checked: {'; '.join(missing)} ({_ASK})")
        return "\n".join(lines)


def coverage(documents: Mapping[str, str], version: str, policy: CheckPolicy) -> Coverage:
    """File name -> YAML. What cannot be read is left out: the check reports it."""
    known = schemas.load(version)
    count = 0
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    skipped = []
    for document in read(documents, Problems()):
        for _, route, value in objects(document):
            kind, api = string(value, "kind"), string(value, "apiVersion")
            if reason := passed_over(value, version):
                name = one_line(string(mapping(value, "metadata"), "name"), 80)
                shown = f"{kind} {show(name)}" if name else kind
                skipped.append(f"{document.file}:{document.place(route)[1]}: {shown} of {show(api)}: {reason}")
                continue
            count += 1
            if f"{api}/{kind}" in known.kinds:
                kinds[has_rules(known.kinds[f"{api}/{kind}"])].add(kind)
    applied = [name for name in policies.ALL if name not in policy.without]
    applied = [f"{name} ({policy.level})" if name == policies.POD_SECURITY else name for name in applied]
    return Coverage(count, sorted(kinds[True]), sorted(kinds[False]), sorted(skipped), applied)
