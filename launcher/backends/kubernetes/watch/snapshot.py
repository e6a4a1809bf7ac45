"""The objects of our runs in a cluster at one moment, and observations made from them.

A Snapshot is filled from lists (`look_up`, `mine`) or kept up to date by watches (`watch.Board`); both give the same
observations.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from launcher.backends.base import BackendObservation, Handle
from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.objects import (
    CARRIERS,
    CHILD_JOB,
    EVENT,
    JOB,
    JOB_SET,
    POD,
    WORKLOAD,
    Kind,
    Metadata,
    controller_of,
    handle,
)
from launcher.backends.kubernetes.watch import reasons
from launcher.backends.kubernetes.watch.endings import Judgement, moment
from launcher.backends.kubernetes.watch.queues import given_away

NAME: Final = "kubernetes"
Object = dict[str, Any]


@dataclass
class Owner:
    """The Job or JobSet of one run or of several."""

    kind: Kind
    metadata: Metadata
    value: Object

    @property
    def shared(self) -> bool:
        """Whether it carries several runs."""
        return names.PIPELINE in self.metadata.labels or names.ARRAY in self.metadata.labels


def owner(kind: Kind, value: Object) -> Owner | None:
    """The object as an owner of runs; None for others, such as the Jobs of a JobSet."""
    metadata = msgspec.convert(value.get("metadata") or {}, Metadata, strict=False)
    if names.JOBSET_NAME in metadata.labels or names.RUNS not in metadata.annotations:
        return None
    return Owner(kind, metadata, value)


@dataclass
class Snapshot:
    """Objects of one namespace (or of all) by kind and name. Not thread-safe."""

    context: str = ""
    owners: dict[tuple[str, str, str], Owner] = field(default_factory=dict)  # (namespace, kind, name)
    by_run: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    carried_by: dict[str, dict[tuple[str, str, str], None]] = field(default_factory=dict)  # the newest last
    pods: dict[tuple[str, str], Object] = field(default_factory=dict)  # (namespace, name)
    pods_of: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # (namespace, run or array) -> names
    child_uids: dict[tuple[str, str], str] = field(default_factory=dict)  # (namespace, name) of a set's Job -> its uid
    set_of: dict[str, str] = field(default_factory=dict)  # uid of such a Job -> uid of its JobSet
    events: dict[tuple[str, str], dict[str, Object]] = field(
        default_factory=dict
    )  # (namespace, name of the object concerned)
    workloads: dict[tuple[str, str], Object] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)  # uid of an owner -> its place in Kueue's queue

    def put(self, kind: Kind, value: Object) -> set[str]:
        """Adds or replaces an object; returns the runs whose observation may have changed."""
        metadata = value.get("metadata") or {}
        key = (metadata.get("namespace") or "", metadata.get("name") or "")
        if kind in CARRIERS:
            carrier = owner(kind, value)
            if carrier is None:
                return set()
            carrier.value = slim(value)
            at = (key[0], kind.name, key[1])
            self.owners[at] = carrier
            runs = set(carrier.metadata.runs)
            for run in runs:
                self.carried_by.setdefault(run, {})[at] = None
                self._choose(run)
            return runs
        if kind is CHILD_JOB:
            self._drop_child(key)
            self.child_uids[key] = str(metadata.get("uid"))
            self.set_of[self.child_uids[key]] = controller_of(value)
            return self._runs_of_set(controller_of(value))
        if kind is POD:
            about = _whose(value)
            self.pods[key] = value
            self.pods_of.setdefault((key[0], about), set()).add(key[1])
            return self._runs(key[0], about)
        if kind is EVENT:
            about = (value.get("involvedObject") or {}).get("name") or ""
            self.events.setdefault((key[0], about), {})[key[1]] = value
            return self._about(key[0], about)
        if kind is WORKLOAD:
            self.workloads[key] = value
            return {run for owner in self._owners_of(value) for run in owner.metadata.runs}
        return set()

    def drop(self, kind: Kind, namespace: str, name: str) -> set[str]:
        """Removes an object; returns the runs whose observation may have changed."""
        if kind in CARRIERS:
            place = (namespace, kind.name, name)
            gone = self.owners.pop(place, None)
            runs = set(gone.metadata.runs) if gone is not None else set()
            for run in runs:
                self.carried_by[run].pop(place, None)
                self._choose(run)
            return runs
        if kind is CHILD_JOB:
            return self._runs_of_set(self._drop_child((namespace, name)))
        if kind is POD:
            pod = self.pods.pop((namespace, name), None)
            if pod is None:
                return set()
            about = _whose(pod)
            self.pods_of.get((namespace, about), set()).discard(name)
            return self._runs(namespace, about)
        if kind is EVENT:
            for at, by_name in list(self.events.items()):
                if at[0] == namespace and by_name.pop(name, None) is not None and not by_name:
                    del self.events[at]
        if kind is WORKLOAD:
            self.workloads.pop((namespace, name), None)
        return set()

    def names(self, kind: Kind) -> set[tuple[str, str]]:
        """(namespace, name) of all objects of a kind."""
        if kind in CARRIERS:
            return {(space, name) for space, of, name in self.owners if of == kind.name}
        if kind is CHILD_JOB:
            return set(self.child_uids)
        if kind is POD:
            return set(self.pods)
        if kind is EVENT:
            return {(space, name) for (space, _), by_name in self.events.items() for name in by_name}
        return set(self.workloads)

    def observe(self, run: str, now: float | None = None) -> BackendObservation | None:
        """The run's state; None when no object here carries it."""
        at = self.by_run.get(run)
        carrier = self.owners.get(at) if at is not None else None
        if carrier is None:
            return None
        verdict = self.judge(carrier, run, time.time() if now is None else now)
        return BackendObservation(
            self.handle(run, carrier),
            verdict.active,
            verdict.phase,
            str(verdict.reason),
            verdict.evidence,
            str((carrier.value.get("metadata") or {}).get("resourceVersion") or ""),
            moment(carrier.metadata.creation) or 0.0,
            applied=carrier.metadata.applied,
        )

    def judge(self, carrier: Owner, run: str, now: float) -> Judgement:
        pods = self.members(carrier, run)
        if names.ARRAY in carrier.metadata.labels:
            ended = reasons.index_outcome(carrier.value, index(carrier.metadata, run), pods)
            if ended is not None:
                return ended
        workload = next(iter(self._workloads(carrier)), None)
        return reasons.judge(
            carrier.value,
            pods,
            list(self._events(carrier, pods, workload)),
            workload,
            run=run,
            now=now,
            position=self.positions.get(carrier.metadata.uid),
        )

    def elsewhere(self, carrier: Owner) -> str:
        """Which other cluster Kueue has given an object to; empty where it has not."""
        given = given_away(carrier.value, next(iter(self._workloads(carrier)), None))
        return given.evidence if given is not None else ""

    def members(self, carrier: Owner, run: str) -> list[Object]:
        """The pods of a run: those with its label that its object controls, itself or through a set's Job."""
        space = carrier.metadata.namespace
        about = carrier.metadata.name if names.ARRAY in carrier.metadata.labels else run
        labelled = [self.pods[space, name] for name in sorted(self.pods_of.get((space, about), ()))]
        pods = [pod for pod in labelled if self._controls(carrier, pod)]
        if about != run:
            completion_index = str(index(carrier.metadata, run))
            pods = [pod for pod in pods if labels(pod).get(names.COMPLETION_INDEX) == completion_index]
        return pods

    def _controls(self, carrier: Owner, pod: Object) -> bool:
        uid = controller_of(pod)
        return bool(uid) and carrier.metadata.uid in (uid, self.set_of.get(uid))

    def _choose(self, run: str) -> None:
        """Sets the object that a run is judged by: the one with its name; others only say that they carry it."""
        places = self.carried_by[run]
        if not places:
            del self.carried_by[run], self.by_run[run]
        else:
            self.by_run[run] = next((place for place in places if place[2] == run), next(reversed(places)))

    def _drop_child(self, key: tuple[str, str]) -> str:
        """Forgets a set's Job; returns the uid of its set."""
        return self.set_of.pop(self.child_uids.pop(key, ""), "")

    def _runs_of_set(self, uid: str) -> set[str]:
        owners = (owner for owner in self.owners.values() if uid and owner.metadata.uid == uid)
        return {run for owner in owners for run in owner.metadata.runs}

    def handle(self, run: str, carrier: Owner) -> Handle:
        return handle(run, NAME, carrier.kind, carrier.metadata, self.context)

    def all(self, now: float | None = None) -> Iterator[BackendObservation]:
        for run in sorted(self.by_run):
            observation = self.observe(run, now)
            if observation is not None:
                yield observation

    def _runs(self, namespace: str, about: str) -> set[str]:
        """The runs that a pod's label names: one, or all of an array."""
        at = (namespace, JOB.name, about)
        if about not in self.by_run and at in self.owners:
            return set(self.owners[at].metadata.runs)
        return {about}

    def _about(self, namespace: str, name: str) -> set[str]:
        pod = self.pods.get((namespace, name))
        if pod is not None:
            return self._runs(namespace, _whose(pod))
        if (workload := self.workloads.get((namespace, name))) is not None:
            return {run for carrier in self._owners_of(workload) for run in carrier.metadata.runs}
        for kind in (JOB, JOB_SET):
            if (carrier := self.owners.get((namespace, kind.name, name))) is not None:
                return set(carrier.metadata.runs)
        for (space, kind_name, owner_name), carrier in self.owners.items():
            if space == namespace and kind_name == JOB_SET.name and name.startswith(owner_name + "-"):
                return set(carrier.metadata.runs)
        return set()

    def _events(self, carrier: Owner, pods: Iterable[Object], workload: Object | None) -> Iterator[Object]:
        space = carrier.metadata.namespace
        others = [*pods, *([workload] if workload is not None else [])]
        about = {carrier.metadata.name, *(str((each.get("metadata") or {}).get("name")) for each in others)}
        if carrier.kind is JOB_SET:
            about |= set(children(carrier.value))
        for name in sorted(about):
            yield from self.events.get((space, name), {}).values()

    def _workloads(self, carrier: Owner) -> Iterator[Object]:
        for value in self.workloads.values():
            if any(each is carrier for each in self._owners_of(value)):
                yield value

    def _owners_of(self, value: Object) -> Iterator[Owner]:
        metadata = value.get("metadata") or {}
        for each in metadata.get("ownerReferences") or ():
            at = (metadata.get("namespace") or "", str(each.get("kind")), str(each.get("name")))
            # by uid: the name may have been another object's before
            if at in self.owners and self.owners[at].metadata.uid == each.get("uid"):
                yield self.owners[at]


def children(job_set: Mapping[str, Any]) -> Iterator[str]:
    """The names of a JobSet's Jobs."""
    name = (job_set.get("metadata") or {}).get("name")
    for each in (job_set.get("spec") or {}).get("replicatedJobs") or ():
        for number in range(int(each.get("replicas", 1))):
            yield f"{name}-{each.get('name')}-{number}"


def labels(value: Mapping[str, Any]) -> Mapping[str, str]:
    result: Mapping[str, str] = (value.get("metadata") or {}).get("labels") or {}
    return result


def index(metadata: Metadata, run: str) -> int:
    """The completion index of a run in an array: its place in the object's list of runs."""
    return list(metadata.runs).index(run)


def _whose(pod: Object) -> str:
    pod_labels = labels(pod)
    return pod_labels.get(names.RUN) or pod_labels.get(names.ARRAY) or ""


def slim(value: Object) -> Object:
    """The object without large parts that are not read: a Job's template may be 100 KB, and a board holds thousands."""
    metadata = {key: item for key, item in (value.get("metadata") or {}).items() if key != "managedFields"}
    spec = dict(value.get("spec") or {})
    if (pod := spec.pop("template", None)) is not None:
        held = _jobs_volume(pod)
        kept = {"template": {"spec": held}} if held else {}
        return {**value, "metadata": metadata, "spec": {**spec, **kept}}
    sets = []
    for each in spec.get("replicatedJobs") or ():
        pod = ((each.get("template") or {}).get("spec") or {}).get("template") or {}
        template = {"spec": {"template": {"metadata": pod.get("metadata") or {}, "spec": _jobs_volume(pod)}}}
        sets.append({**each, "template": template})
    if sets:
        spec["replicatedJobs"] = sets
    return {**value, "metadata": metadata, "spec": spec}


def _jobs_volume(pod: Object) -> Object:
    """The part of a pod's spec that names the ConfigMaps with its jobs; empty without any."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    held = [volume for volume in volumes if volume.get("name") == names.JOBS_VOLUME]
    return {"volumes": held} if held else {}
