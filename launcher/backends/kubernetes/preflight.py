"""Questions to a cluster before anything is written: whether all objects that the jobs name exist, whether we may
create ours, and, by a dry run of the first of each shape, whether the cluster accepts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.api import ONLY_METADATA, ApiRefused
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.creating import Creator
from launcher.backends.kubernetes.objects import (
    CONFIG_MAP,
    JOB,
    JOB_SET,
    LOCAL_QUEUE,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
    ObjectDocument,
    files,
)
from launcher.backends.kubernetes.queueing import named, queue_kinds
from launcher.backends.kubernetes.render.manifests import Object, render
from launcher.backends.kubernetes.watch.endings import at
from launcher.decoding import decode
from launcher.errors import BadInput
from launcher.spec.model import ResolvedJob

CLAIM: Final = Kind("PersistentVolumeClaim", "/api/v1", "persistentvolumeclaims")
PRIORITY_CLASS: Final = Kind("PriorityClass", "/apis/scheduling.k8s.io/v1", "priorityclasses")
QUEUE_PRIORITY: Final = Kind("WorkloadPriorityClass", LOCAL_QUEUE.group, "workloadpriorityclasses")
NAMESPACE: Final = Kind("Namespace", "/api/v1", "namespaces")
REVIEW: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
QUEUES: Final = "https://kueue.sigs.k8s.io/docs/installation/"
SETS: Final = "https://jobset.sigs.k8s.io/docs/installation/"
PARALLEL: Final = 8


def check(cluster: Connection, creator: Creator, group: Sequence[ResolvedJob], made: Iterable[Object]) -> None:
    """Raises BadInput with everything that is missing, Unreachable when the cluster cannot be asked. `made`: what
    the group is sent as, of several objects each."""
    if not group:
        return
    asked = _questions(cluster, group)
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="check") as threads:
        answers = list(threads.map(lambda question: question.ask(cluster, creator), asked))
    wrong = [line for lines in answers for line in lines]
    wrong += left_behind(cluster, creator, made)
    if wrong:
        raise BadInput("\n".join(dict.fromkeys(wrong)))
    creator.try_out(_firsts(cluster, group))


class Question(msgspec.Struct, frozen=True):
    """Whether an object exists. `namespace`: "" for objects without one. `keys`: those that a secret must have. `kind`
    None: whether we may create objects."""

    kind: Kind | None
    namespace: str
    name: str
    keys: frozenset[str] = frozenset()

    def ask(self, cluster: Connection, creator: Creator) -> list[str]:
        if self.kind is None:
            return _may(cluster, self.namespace, self.name)
        asked = f"{_WORDS[self.kind.name]} {self.name}"
        space = "" if self.kind is NAMESPACE else self.namespace
        where = f"{f'namespace {space} of ' if space else ''}cluster {cluster.api.where}"
        try:
            # of a secret only the names of its keys are kept
            accept = "application/json" if self.keys else ONLY_METADATA
            answer = cluster.api.get(self.kind.path(space, self.name), accept=accept)
        except ApiRefused as error:
            if error.status != 403:
                raise
            creator.note(f"{asked} in {where} may not be read by you: assumed to exist")
            return []
        if answer is None:
            if self.kind is LOCAL_QUEUE and not cluster.serves(LOCAL_QUEUE):
                return [f"{asked}: cluster {cluster.api.where} has no Kueue: {QUEUES}"]
            return [f"{asked} is not in {where}"]
        if self.keys:
            there = decode(answer.body, _Keys).data
            missing = sorted(self.keys - set(there))
            known = ", ".join(sorted(there)) or "none"
            return [f"{asked} in {where} has no key {key}; it has {known}" for key in missing]
        return []


_WORDS: Final = {
    "Namespace": "namespace",
    "Secret": "secret",
    "ServiceAccount": "service account",
    "PriorityClass": "priority class",
    "WorkloadPriorityClass": "queue's priority class",
    "LocalQueue": "queue",
    "PersistentVolumeClaim": "claim",
}


class _Keys(msgspec.Struct):
    data: dict[str, msgspec.Raw] = {}


def _questions(cluster: Connection, group: Sequence[ResolvedJob]) -> list[Question]:
    questions: dict[Question, None] = {}
    keys: dict[tuple[str, str], set[str]] = {}
    for job in group:
        own = job.options
        space = str(own.get("namespace") or cluster.namespace)
        questions[Question(NAMESPACE, space, space)] = None
        bound = any(item.work or item.works for item in job.inputs.values())  # to another job of the same submit
        questions[Question(None, space, "jobset" if len(job.members()) > 1 or bound else "job")] = None
        for kind, key in ((SERVICE_ACCOUNT, "service_account"), (LOCAL_QUEUE, "queue")):
            if own.get(key):
                questions[Question(kind, space, str(own[key]))] = None
        for kind, key in ((PRIORITY_CLASS, "priority_class"), (QUEUE_PRIORITY, "queue_priority")):
            if own.get(key):
                questions[Question(kind, "", str(own[key]))] = None
        volumes = own.get("volumes", ())
        for claim in (*(each["name"] for each in own.get("caches", ())), *(each.get("claim") for each in volumes)):
            if claim:
                questions[Question(CLAIM, space, str(claim))] = None
        of_buckets = [each["secret"] for each in volumes if "secret" in each]
        for name in (own.get("store_secret"), *(own.get("image_pull_secrets") or ()), *of_buckets):
            if name:
                keys.setdefault((space, str(name)), set())
        for place in job.secrets.values():
            secret, _, key = place.partition("/")
            keys.setdefault((space, secret), set()).add(key)
    asked = list(questions)
    asked += [Question(SECRET, space, name, frozenset(wanted)) for (space, name), wanted in keys.items()]
    return asked


def _may(cluster: Connection, namespace: str, shape: str) -> list[str]:
    """Whether we may create Jobs (or JobSets), and whether the cluster has JobSet."""
    api, kind = cluster.api, JOB_SET if shape == "jobset" else JOB
    if kind is JOB_SET and not cluster.serves(JOB_SET):
        return [f"cluster {api.where} has no JobSet; several ranks, roles or stages need it: {SETS}"]
    group = kind.group.split("/")[2]
    lines = []
    for verb in ("create", "get", "delete"):
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {"namespace": namespace, "verb": verb, "group": group, "resource": kind.plural}
            },
        }
        answer = api.request("POST", REVIEW, body=msgspec.json.encode(body)).json()
        if not (answer.get("status") or {}).get("allowed"):
            lines.append(f"you may not {verb} {kind.plural}.{group} in namespace {namespace} of cluster {api.where}")
    return lines


def _firsts(cluster: Connection, group: Sequence[ResolvedJob]) -> Iterable[ObjectDocument]:
    """The objects of one job of each shape, each rendered alone."""
    first_jobs: dict[bytes, ResolvedJob] = {}
    for job in group:
        # a stage that reads another's output is rendered only with its pipeline: `submit` dry-runs that
        if job.options.get("array") or any(item.work or item.works for item in job.inputs.values()):
            continue
        roles = {
            name: (role.image, role.replicas, role.resources, role.ports, sorted(role.env))
            for name, role in job.roles.items()
        }
        key = msgspec.json.encode([roles, job.options, job.secrets, job.limits], order="deterministic")
        first_jobs.setdefault(key, job)
    for job in first_jobs.values():
        by_name = files(render([job]), cluster.namespace)
        yield from (document for each in by_name.values() for document in each.documents)


# Jobs for a queue that gives them to other clusters (Kueue's MultiKueue): Kueue copies the Job or JobSet there, and
# nothing else. A run whose job is in a ConfigMap would wait for it in that cluster for ever.


def left_behind(place: Connection, creator: Creator, made: Iterable[Object]) -> Iterator[str]:
    """A line for each object whose ConfigMaps its queue would leave here. `made`: as they are sent. The open runs of a
    submit alone may render to others: a pipeline is sent as a whole, with the stages that have ended. Only queues of
    objects that have ConfigMaps are asked for; what this login may not read becomes a note."""
    checks: dict[tuple[str, str], str] = {}
    for held, way, namespace, queue in _apart(made, place.namespace):
        if (namespace, queue) not in checks:
            checks[namespace, queue] = _giving(place, creator, namespace, queue)
        if check := checks[namespace, queue]:
            why = f"queue {queue} gives jobs to other clusters (MultiKueue, admission check {check})"
            yield f"{held}; {why}, and Kueue does not copy ConfigMaps there: {way}"


def _apart(made: Iterable[Object], namespace: str) -> Iterator[tuple[str, str, str, str]]:
    """Each object with ConfigMaps that goes to a queue: what it is, what helps, its namespace and its queue."""
    for item in made:
        metadata = item.main["metadata"]
        maps = config_maps(item) if names.QUEUE in metadata["labels"] else []
        if not maps:
            continue
        held = f"{item.main['kind']} {item.name}: its jobs are in ConfigMap {', '.join(maps)}"
        way = "leave out `kubernetes.array`" if _array(item) else "make the job smaller, or take another queue"
        yield held, way, metadata.get("namespace") or namespace, metadata["labels"][names.QUEUE]


def config_maps(item: Object) -> list[str]:
    """The names of an object's ConfigMaps."""
    return [each["metadata"]["name"] for each in item.documents if each["kind"] == CONFIG_MAP.name]


def _array(item: Object) -> bool:
    """Whether some of its runs are an array's: then their jobs are in a ConfigMap, however small."""
    children = [each["template"]["spec"] for each in item.main["spec"].get("replicatedJobs", ())]
    return any("backoffLimitPerIndex" in spec for spec in children or [item.main["spec"]])


def _giving(place: Connection, creator: Creator, namespace: str, queue: str) -> str:
    """The admission check by which a queue gives its jobs to other clusters; "" without one."""
    kinds = queue_kinds(place)
    if kinds is None:
        return ""
    local, cluster = kinds
    checks = Kind("AdmissionCheck", cluster.group, "admissionchecks")
    try:
        there = place.api.get(local.path(namespace, queue))
        behind = str(at(there.json(), "spec", "clusterQueue") or "") if there is not None else ""
        whole = place.api.get(cluster.path("", behind)) if behind else None
        for name in named(whole.json()) if whole is not None else ():
            check = place.api.get(checks.path("", name))
            if check is not None and at(check.json(), "spec", "controllerName") == names.MULTIKUEUE:
                return name
    except ApiRefused as error:
        if error.status != 403:
            raise
        unknown = f"whether queue {queue} gives jobs to other clusters is not known ({error.message})"
        creator.note(f"{unknown}; there, jobs that are in ConfigMaps do not start")
    return ""
