"""Whether a cluster will accept an object, answered offline, before anything is sent or paid for.

Three things are checked: the strict schema of the kind in the chosen version of Kubernetes, for the kinds that we
render and ship what API server and webhooks refuse beyond it (`rules`), and house policies (`policies`), each of which
can be switched off by its name. An object of a kind that has no schema here is passed over. All errors are reported
together, as `file:line:col: path: what; allowed: ...`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from launcher.backends.kubernetes import names, schemas
from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.files import read
from launcher.backends.kubernetes.check.rules.containers import DIGEST
from launcher.backends.kubernetes.check.rules.forms import (
    LABEL,
    LABEL_1035,
    SEGMENT,
    SUBDOMAIN,
    Form,
    Say,
    annotation_sizes,
    items,
    labels,
    mapping,
    string,
)
from launcher.backends.kubernetes.check.rules.objects import RULES
from launcher.backends.kubernetes.check.rules.security import DEFAULT, LEVELS, pod_security
from launcher.backends.kubernetes.check.rules.workloads import unjudged
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
    results: SchemaFindings = []
    api, kind = value.get("apiVersion"), value.get("kind")
    group = api.rpartition("/")[0] if isinstance(api, str) else ""
    if group in OTHERS:
        return results
    if api is None and kind is None and looks_like_job(value):
        told = "manifests; `launcher render` makes one of a job, `launcher submit --dry-run` checks the job"
        return [SchemaFinding((), "is a job, not a manifest", told)]
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str):
            results.append(SchemaFinding((), f"`{field}` is missing", "", key=True))
    known, compiler = _compiled(version)
    name = known.kinds.get(f"{api}/{kind}")
    if results or passed_over(value, version):
        return results
    if name is None:
        return [_unknown(str(api), str(kind), known.builtin)]
    compiler.named(name)(value, (), results)
    if f"{api}/{kind}" in known.builtin:
        results = [_judged(item, str(kind), _numbers(version)) for item in results]
    if kind == "JobSet":
        _jobs(value, compiler, results)
    if policy.patch:
        return [item for item in results if not item.what.endswith("` is missing") and not _directive(item)]
    say = Say(results, _numbers(version))
    _metadata(say, value, f"{api}/{kind}" in known.cluster, str(kind))
    rule = RULES.get(f"{group}/{kind}" if group else str(kind))
    if kind in SPECS and "spec" not in value:
        say((), "`spec` is missing", key=True)
    elif rule is not None:
        rule(say, value)
    level = (levels or {}).get(string(mapping(value, "metadata"), "namespace"), policy.level)
    for route, template in templates(value):
        pod_security(say, template, route, level)
        _pinned(say, template, route)
    _queue(say, value)
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace"))
    if size > MAX_OBJECT:
        say((), f"{size:,} bytes", f"at most {MAX_OBJECT:,} in etcd")
    return results


def passed_over(value: Mapping[str, Any], version: str = schemas.DEFAULT) -> str:
    """Why an object is not checked; empty where it is. A kind of Kubernetes itself that does not exist is an error."""
    api, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(api, str) or not isinstance(kind, str):
        return ""
    known, _ = _compiled(version)
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


def _jobs(value: Mapping[str, Any], compiler: Compiler, results: SchemaFindings) -> None:
    """Checks the Jobs inside a JobSet by the Job's schema. The JobSet's schema allows any text where a Job's allows a
    few values, but the cluster would refuse each such Job."""
    more: SchemaFindings = []
    for at, job in items(mapping(value, "spec"), "replicatedJobs", ("spec",)):
        if isinstance(mapping(job, "template").get("spec"), dict):
            compiler.named("io.k8s.api.batch.v1.JobSpec")(job["template"]["spec"], (*at, "template", "spec"), more)
    reported = {item.route for item in results}
    results += [item._replace(policy=policies.NEVER_STARTS) for item in more if item.route not in reported]


def _judged(item: SchemaFinding, kind: str, version: tuple[int, int]) -> SchemaFinding:
    """The finding, under the house policy that it breaks where the server of that version takes the object."""
    if item.judged and not item.policy and (policy := unjudged(kind, item.route, version)):
        return item._replace(policy=policy)
    return item


@cache
def _compiled(version: str) -> tuple[schemas.Schemas, Compiler]:
    known = schemas.load(version)
    return known, Compiler(known.definitions)


def _numbers(version: str) -> tuple[int, int]:
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
    metadata, at = mapping(value, "metadata"), ("metadata",)
    if "generateName" in metadata:
        message = "`kubectl apply` and GitOps need a fixed name, and a new one would run the same thing again"
        say((*at, "generateName"), message, "metadata.name", key=True, policy=policies.FIXED_NAMES)
    if "name" in metadata:
        relaxed = kind == "Service" and say.version >= (1, 36)  # RelaxedServiceNameValidation, on by default since then
        say.form((*at, "name"), metadata["name"], LABEL if relaxed else _FORMS.get(kind, SUBDOMAIN))
    elif "generateName" not in metadata and isinstance(value.get("metadata"), dict):
        say(at, "`name` is missing", key=True)
    if "namespace" in metadata:
        if cluster:
            message = f"a {kind} lies in no namespace"
            say((*at, "namespace"), message, "leave it out", key=True, policy=policies.NO_EFFECT)
        else:
            say.form((*at, "namespace"), metadata["namespace"], LABEL)
    labels(say, mapping(metadata, "labels"), (*at, "labels"))
    annotation_sizes(say, mapping(metadata, "annotations"), (*at, "annotations"))


def _pinned(say: Say, template: Mapping[str, Any], route: Route) -> None:
    spec = mapping(template, "spec")
    for part in ("initContainers", "containers"):
        for at, container in items(spec, part, (*route, "spec")):
            image = container.get("image")
            if isinstance(image, str) and DIGEST.search(image) is None:
                say(
                    (*at, "image"),
                    f"{show(image)} names no digest, so it may be another image tomorrow",
                    "name@sha256:...",
                    policy=policies.DIGESTS,
                )


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
        for where, container in items(mapping(template, "spec"), "containers", (*route, "spec")):
            limits, requests = mapping(container, "resources", "limits"), mapping(container, "resources", "requests")
            if "cpu" not in limits and "cpu" not in requests:
                message = "asks for no cpu, and Kueue counts requests"
                say(where, message, "resources.requests.cpu", key=True, policy=policies.QUEUES)


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
    ruled: set[str] = set()
    schema_only: set[str] = set()
    passed_over = []
    for document in read(documents, Problems()):
        for _, route, value in objects(document):
            kind = string(value, "kind")
            if reason := passed_over(value, version):
                place = f"{document.file}:{document.place(route)[1]}"
                name = one_line(string(mapping(value, "metadata"), "name"), 80)
                shown = f"{kind} {show(name)}" if name else kind
                passed_over.append(f"{place}: {shown} of {show(value['apiVersion'])}: {reason}")
                continue
            count += 1
            group = string(value, "apiVersion").rpartition("/")[0]
            if f"{string(value, 'apiVersion')}/{kind}" in known.kinds:
                (ruled if (f"{group}/{kind}" if group else kind) in RULES else schema_only).add(kind)
    applied = [name for name in policies.ALL if name not in policy.without]
    level = policies.POD_SECURITY
    applied = [f"{name} ({policy.level})" if name == level else name for name in applied]
    return Coverage(count, sorted(ruled), sorted(schema_only), sorted(passed_over), applied)
