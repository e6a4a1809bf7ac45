"""Asks once for the state of some runs in a cluster: by name where possible, otherwise from lists."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

import msgspec

from launcher.backends.base import BackendObservation, Handle
from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.api import ONLY_METADATA_LIST, Api, ApiRefused
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
    handle,
)
from launcher.backends.kubernetes.watch.queues import positions
from launcher.backends.kubernetes.watch.snapshot import NAME, Object, Owner, Snapshot, children, owner

FEW: Final = 16  # most runs or objects that are asked for one by one; more are listed
SHARED: Final = 3.0  # seconds for which patient callers use a list again
_listing: Final = threading.Lock()
ABSENT: Final = 3.0  # seconds before a missing kind is asked for again


def read_objects(
    api: Api, kind: Kind, space: str, places: Collection[tuple[str, str]], threads: ThreadPoolExecutor
) -> Iterator[Object]:
    """The whole Jobs or JobSets at these places (namespace and name); those that are gone are left out. `space`: the
    namespace whose list has them all; "" for the list of all namespaces."""
    if len(places) <= FEW:
        for answer in threads.map(lambda place: api.get(kind.path(*place)), sorted(places)):
            if answer is not None:
                yield answer.json()
        return
    left = set(places)  # a list that starts again gives an object twice
    for page in api.pages(kind.path(space), labelSelector=names.SELECTOR):
        for item in page.get("items") or ():
            place = (item["metadata"].get("namespace") or "", item["metadata"]["name"])
            if place in left:
                left.discard(place)
                # items of a list do not say their kind
                yield {**item, "kind": kind.name, "apiVersion": kind.group.removeprefix("/apis/")}


@dataclass(frozen=True)
class StateReader:
    """The queries about a namespace of a cluster."""

    api: Api
    namespace: str

    @property
    def context(self) -> str:
        return self.api.login.context

    def find(self, runs: Collection[str]) -> Mapping[str, Handle]:
        """The handles of those runs that exist, in few requests for any number of runs."""
        if len(runs) <= FEW:
            with ThreadPoolExecutor(FEW) as threads:
                carriers = threads.map(self.owner, runs)
                return {
                    run: handle(run, NAME, carrier.kind, carrier.metadata, self.context)
                    for run, carrier in zip(runs, carriers, strict=True)
                    if carrier is not None
                }
        wanted, handles = set(runs), {}
        for kind in self.kinds():
            path = kind.path(self.namespace)
            for page in self.api.pages(path, accept=ONLY_METADATA_LIST, labelSelector=names.SELECTOR):
                for item in page.get("items") or ():
                    metadata = msgspec.convert(item.get("metadata") or {}, Metadata, strict=False)
                    for run in wanted & set(metadata.runs):
                        if names.JOBSET_NAME not in metadata.labels:
                            handles[run] = handle(run, NAME, kind, metadata, self.context)
        return handles

    def closely(self, run: str, *, patient: bool = False) -> tuple[BackendObservation | None, Snapshot, Owner | None]:
        """The run's present state, with the snapshot and the owner from which it was read. `patient`: as `owner` has
        it."""
        snapshot = Snapshot(self.context)
        carrier = self.owner(run, patient=patient)
        if carrier is None:
            return None, snapshot, None
        space = carrier.metadata.namespace
        self.fill(snapshot, carrier, run)
        observation = snapshot.observe(run, self.api.now())
        if observation is None or not observation.active or observation.phase == "running":
            return observation, snapshot, carrier
        # only events and the queue tell why it does not run
        workloads = list(self._workloads(carrier))
        for workload in workloads:
            snapshot.put(WORKLOAD, workload)
        about = [carrier.metadata.name, *(children(carrier.value) if carrier.kind is JOB_SET else ())]
        about += [str((pod.get("metadata") or {}).get("name")) for pod in snapshot.members(carrier, run)]
        about = [*(str(workload["metadata"]["name"]) for workload in workloads), *about]
        for name in about[:FEW]:
            for event in self.items(EVENT, fieldSelector=f"involvedObject.name={name},type=Warning"):
                snapshot.put(EVENT, event)
        if names.QUEUE in carrier.metadata.labels and (carrier.value.get("spec") or {}).get("suspend"):
            snapshot.positions.update(positions(self.api, space, carrier.metadata.labels[names.QUEUE]))
        return snapshot.observe(run, self.api.now()), snapshot, carrier

    def _workloads(self, carrier: Owner) -> Iterator[Object]:
        """Kueue's, of an object that it holds back or has given to another cluster."""
        spec = carrier.value.get("spec") or {}
        if names.QUEUE in carrier.metadata.labels and (
            spec.get("suspend") or spec.get("managedBy") == names.MULTIKUEUE
        ):
            yield from self.items(WORKLOAD, labelSelector=f"kueue.x-k8s.io/job-uid={carrier.metadata.uid}")

    def owner(self, run: str, *, patient: bool = False) -> Owner | None:
        """The Job or JobSet that carries a run: by its name, otherwise among objects of several runs. `patient`: a list
        of these is taken again for `SHARED` seconds, for callers that ask for many runs and decide nothing that an
        object could contradict that was made meanwhile."""
        for kind in self.kinds():
            answer = self.api.get(kind.path(self.namespace, run))
            carrier = owner(kind, answer.json()) if answer is not None else None
            if carrier is not None:
                return carrier
        for kind, label in ((JOB_SET, names.PIPELINE), (JOB, names.ARRAY)):
            if kind not in self.kinds():
                continue
            for carrier in self._shared(kind, label, SHARED if patient else 0.0):
                if run in carrier.metadata.runs:
                    return carrier
        return None

    def _shared(self, kind: Kind, label: str, kept: float) -> Iterable[Owner]:
        """The objects that carry several runs; a list that is younger than `kept` seconds is used again."""
        with _listing if kept else nullcontext():
            at, carriers = self.api.shared.get((self.namespace, kind.name), (-SHARED, []))
            if time.monotonic() - at >= kept:
                listed = (owner(kind, value) for value in self.items(kind, labelSelector=label))
                carriers = [carrier for carrier in listed if carrier is not None]
                self.api.shared[self.namespace, kind.name] = (time.monotonic(), carriers)
        return carriers

    def fill(self, snapshot: Snapshot, carrier: Owner, run: str) -> None:
        """Puts a run's object into a snapshot, with its pods and the Jobs between them."""
        snapshot.put(carrier.kind, carrier.value)
        if carrier.kind is JOB_SET:
            for child in self.items(CHILD_JOB, labelSelector=f"{names.JOBSET_NAME}={carrier.metadata.name}"):
                snapshot.put(CHILD_JOB, child)
        for pod in self.pods(carrier, run):
            snapshot.put(POD, pod)

    def pods(self, carrier: Owner, run: str) -> Iterator[Object]:
        array = names.ARRAY in carrier.metadata.labels
        yield from self.items(
            POD, labelSelector=f"{names.ARRAY}={carrier.metadata.name}" if array else f"{names.RUN}={run}"
        )

    def items(self, kind: Kind, **query: str) -> Iterator[Object]:
        """The objects of a kind; none where it may not be listed. Raises ApiRefused for Jobs and JobSets."""
        try:
            for page in self.api.pages(kind.path(self.namespace), **query):
                yield from page.get("items") or ()
        except ApiRefused as error:
            if error.status != 403 or kind in CARRIERS:
                raise

    def kinds(self) -> tuple[Kind, ...]:
        return CARRIERS if self.serves(JOB_SET) else (JOB,)

    def serves(self, kind: Kind) -> bool:
        """Whether the cluster knows a kind. The answer is kept; a missing kind is asked for again."""
        served = self.api.known
        at, is_served = served.get(kind.group, (0.0, False))
        if not at or (not is_served and time.monotonic() - at > ABSENT):
            is_served = self.api.get(kind.group) is not None
            served[kind.group] = (time.monotonic(), is_served)
        return is_served
