"""Questions to a cluster before anything is written: whether all objects that the jobs name exist, whether we may
create ours, and, by a dry run of the first of each shape, whether the cluster accepts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from launcher.backends.kubernetes.api import ONLY_METADATA, ApiRefused
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.creating import Creator
from launcher.backends.kubernetes.multikueue import left_behind
from launcher.backends.kubernetes.objects import (
    JOB,
    JOB_SET,
    LOCAL_QUEUE,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
    ObjectDocument,
    files,
)
from launcher.backends.kubernetes.render.manifests import Object, render
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
