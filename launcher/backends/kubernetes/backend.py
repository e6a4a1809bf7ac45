"""The Kubernetes backend (docs/explanation/architecture.md). It sends what it renders, and finds every object again by
name and label, so it keeps no state on this machine."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from launcher.backends.abilities import CarriedRun
from launcher.backends.base import BackendObservation, Handle, QueueListing, Rendered
from launcher.backends.kubernetes import connection, names
from launcher.backends.kubernetes.api import Api, ApiRefused
from launcher.backends.kubernetes.connection import Connection, authorities_of
from launcher.backends.kubernetes.creating import Creator
from launcher.backends.kubernetes.objects import (
    CHILD_JOB,
    JOB_SET,
    POD,
    SENT,
    Kind,
    Metadata,
    RenderedFile,
    files,
    handle,
)
from launcher.backends.kubernetes.watch.event_cache import EventCache
from launcher.backends.kubernetes.watch.snapshot import NAME, Snapshot
from launcher.backends.kubernetes.watch.state_reader import StateReader, read_objects
from launcher.errors import Conflict, SlipwayError, Unreachable
from launcher.protocol.records import Placement
from launcher.spec.hashing import run_hash, run_id
from launcher.spec.model import ResolvedJob

if TYPE_CHECKING:
    from launcher.backends.kubernetes.render.manifests import Object

OFTEN: Final = 6  # look-ups within `LATELY` after which a watch replaces them
PARALLEL: Final = 32  # objects that are compared at once
LATELY: Final = 3.0  # seconds
UNWATCHED: Final = 60.0  # seconds until a refused watch is tried again
LISTED: Final = 10.0  # seconds for which Flux' inventories are not read again
LOOK: Final = 5.0  # seconds after which a run is judged again even without a change: some states show only by time

_boards: dict[tuple[int, str], EventCache] = {}
_starting = threading.Lock()


def close_all() -> None:
    """Ends every watch and connection of this process. The next request connects again."""
    for board in list(_boards.values()):
        board.stop()
        for feed in board.feeds:
            feed.join(5)
    _boards.clear()
    connection.close_all()


class KubernetesBackend(Connection):
    """Runs on a cluster. `options`: namespace, context (of the kubeconfig), and the rest of the job's block."""

    name = NAME

    def __init__(self, options: Mapping[str, object]) -> None:
        super().__init__(options)
        self._creator: Creator | None = None
        self._read: dict[str, Sequence[Mapping[str, Any]]] = {}  # text of a rendered file -> its objects
        self._several: dict[str, Object] = {}  # run -> its rendered objects, where these are several
        self._unwatched = -UNWATCHED  # when a watch was last refused
        self._starting = threading.Lock()
        self._asked: deque[float] = deque(maxlen=OFTEN)
        self._listed: tuple[float, Collection[tuple[str, str]]] = (-LISTED, ())

    @property
    def creator(self) -> Creator:
        if self._creator is None:
            self._creator = Creator(self.api)
        return self._creator

    @property
    def place(self) -> str:
        return f"{self.login.context}/{self.namespace}"

    def render(self, group: Sequence[ResolvedJob]) -> Rendered:
        from launcher.backends.kubernetes.render.manifests import objects, text, warnings

        rendered_objects = objects(group)
        documents = {}
        for item in rendered_objects:
            documents[item.file] = text(item)
            # parsing the YAML again would take longer than the rest of the submit
            self._read[documents[item.file]] = item.documents
            self._several |= dict.fromkeys(item.runs if len(item.documents) > 1 else (), item)
        return Rendered(documents, {run: item.file for item in rendered_objects for run in item.runs}, warnings(group))

    def check(self, group: Sequence[ResolvedJob]) -> None:
        """Asks the cluster, before anything is written, for all that the jobs need, which were rendered before. Raises
        BadInput with everything that is missing."""
        from launcher.backends.kubernetes.preflight import check

        runs = map(run_id, group) if self._several else ()
        made = {item.name: item for run in runs if (item := self._several.get(run)) is not None}
        check(self, self.creator, group, made.values())

    def submit(self, rendered: Rendered, group: Sequence[ResolvedJob]) -> Mapping[str, Handle]:
        hashes = {run_id(job, hashed): hashed for job in group for hashed in (run_hash(job),)}
        if unknown := sorted(set(rendered.objects) - set(hashes)):
            raise Conflict(f"{unknown[0]} is not a run of this submit")
        # a job without a namespace goes to the context's, whatever other jobs of this submit name
        named = any(job.options.get("namespace") for job in group)
        by_name = files(rendered, self.login.namespace if named else self.namespace, self._read)
        for run, name in rendered.objects.items():
            carried = by_name[name].carrier.metadata.runs
            if carried.get(run) != hashes[run]:
                raise Conflict(f"{name} does not carry {run} as it is submitted")
        self._refuse_overlaps(rendered, by_name)
        self.creator.try_out(document for each in by_name.values() for document in each.documents)
        created = self.creator.create_all(by_name.values())
        return {run: self._handle(run, by_name[name], created[name]) for run, name in rendered.objects.items()}

    def _refuse_overlaps(self, rendered: Rendered, by_name: Mapping[str, RenderedFile]) -> None:
        """Refuses a pipeline with a stage that is running in another object. The pipeline's own copy of that stage
        would end as `duplicate`, which fails the whole set, and would first take the stage's resources."""
        for name in dict.fromkeys(rendered.objects.values()):
            carried = by_name[name].carrier.metadata
            for run in sorted(set(carried.runs) - set(rendered.objects)):
                observation = self.look_up(run)
                if observation is not None and observation.active and observation.handle.name != carried.name:
                    raise Conflict(
                        f"{run} runs in {observation.handle.name}, and {carried.name} would start it again: "
                        f"`launcher wait {run}` and submit once more (its result is used), or cancel it first"
                    )

    def _handle(self, run: str, file: RenderedFile, there: Metadata) -> Handle:
        return handle(run, NAME, file.carrier.kind, there, self.login.context)

    # observing

    def find(self, runs: Collection[str]) -> Mapping[str, Handle]:
        """The handles of those runs that exist. Raises Conflict when an object runs something else than its jobs."""
        from launcher.backends.kubernetes.check.carried import refuse_changed

        handles = self.looking.find(runs)
        missing = [run for run in runs if run not in handles]
        for line in self.elsewhere(missing).values() if missing else ():
            raise Conflict(line)
        self._compare(handles.values(), refuse_changed)
        return handles

    def compare_ended(self, runs: Collection[str]) -> None:
        """Raises Conflict when the object of a run that has ended ran something else than its jobs. An object that is
        gone says nothing."""
        from launcher.backends.kubernetes.check.carried import refuse_results

        try:
            handles = dict(self.looking.find(runs))
            for run, namespace in self._in_others([run for run in runs if run not in handles]).items():
                handles |= StateReader(self.api, namespace).find([run])
            self._compare(handles.values(), refuse_results)
        except ApiRefused as error:
            if error.status != 403:
                raise
            raise Unreachable(str(error)) from None

    def _compare(self, handles: Iterable[Handle], refuse: Callable[[Api, Mapping[str, Any]], None]) -> None:
        """Reads the objects of the runs and calls `refuse` with each."""
        places: dict[tuple[str, str], set[str]] = {}
        for each in handles:
            places.setdefault((each.place["kind"], each.place["namespace"]), set()).add(each.name)
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="compare") as threads:
            for (kind, namespace), objects in places.items():
                values = read_objects(self.api, SENT[kind], namespace, {(namespace, name) for name in objects}, threads)
                for _ in threads.map(lambda value: refuse(self.api, value), values):
                    pass

    def elsewhere(self, runs: Collection[str]) -> Mapping[str, str]:
        """Run -> a line, for runs whose objects are in another namespace of this cluster, where neither the job nor the
        profile names one."""
        from launcher.backends.kubernetes.carrying import describe_namespace

        return {
            run: describe_namespace(run, namespace, self.namespace) for run, namespace in self._in_others(runs).items()
        }

    def _in_others(self, runs: Collection[str]) -> Mapping[str, str]:
        """Run -> its object's namespace, where that is another than ours and no option names ours."""
        from launcher.backends.kubernetes.carrying import namespaces

        return namespaces(self, runs) if runs and not self.options.get("namespace") else {}

    def look_up(self, run: str) -> BackendObservation | None:
        """A few look-ups ask the cluster each time; frequent ones start a watch and are answered from it."""
        board = self._board_if_busy()
        if board is None:
            return self.look_closely(run)[0]
        # what the watch does not know may have been made a moment ago
        return board.look_up(run) or self.looking.closely(run, patient=True)[0]

    def here(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        if placement is None:  # no pod has claimed the run: without an object here, another cluster may have it
            return seen is not None
        if seen is not None:  # the same object, or an object of the same name in another cluster
            return seen.handle.place.get("uid") == placement.where or self._same_cluster(placement)
        return not placement.cluster or self._same_cluster(placement)

    def dead(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        return False

    def _same_cluster(self, placement: Placement) -> bool:
        return not set(placement.cluster).isdisjoint(authorities_of(self.login))

    # watching

    def _board_if_busy(self) -> EventCache | None:
        board = _boards.get((id(self.api), self.namespace))
        if board is not None and board.living:
            return board
        now = time.monotonic()
        if now - max(self._unwatched, board.refused if board is not None else self._unwatched) < UNWATCHED:
            return None
        self._asked.append(now)
        if len(self._asked) < OFTEN or now - self._asked[0] > LATELY:
            return None
        with self._starting:  # all who ask meanwhile wait for the one start, and for its failure too
            if time.monotonic() - self._unwatched < UNWATCHED:
                return None
            try:
                return self.board()
            except SlipwayError:
                self._unwatched = time.monotonic()  # without the right to watch, plain requests may still work
                return None

    def board(self) -> EventCache:
        """The watch over this backend's namespace, one for each process. Raises Unreachable, ApiRefused."""
        api = self.api
        key = (id(api), self.namespace)
        with _starting:
            board = _boards.get(key)
            if board is None or not board.living:
                board = EventCache(api, self.namespace, self.login.context)
                board.start()
                _boards[key] = board
            return board

    def watch(self, handles: Collection[Handle], cursor: str | None) -> Iterator[BackendObservation]:
        """Changes of the runs, until none is active. `cursor` is not used: the watch resumes by itself, and the first
        observations are the present state."""
        active = {handle.run: handle for handle in handles}
        last: dict[str, BackendObservation] = {}
        board = self.board()
        for runs in board.follow(active, LOOK):
            for run in sorted(runs & active.keys()):
                observation = board.look_up(run)
                if observation is None and run not in last:
                    observation = self.look_closely(run)[0]  # created after the board's last update, or never
                observation = observation or BackendObservation(active[run], active=False, phase="ended")
                if last.get(run) != observation:
                    changed = run not in last or _essence(observation) != _essence(last[run])
                    last[run] = observation
                    if changed:
                        yield observation
                if not observation.active:
                    del active[run]
            if not active:
                return

    def logs(self, handle: Handle, role: str, rank: int, previous: bool) -> Iterator[bytes]:
        from launcher.backends.kubernetes.enter.logs import logs

        return logs(self, handle, role, rank, previous)

    def execute(self, run: str, member: str, command: Sequence[str], *, tty: bool) -> list[str]:
        from launcher.backends.kubernetes.enter.argv import execute

        return execute(self, run, member, command, tty=tty)

    def forward(self, run: str, member: str, ports: Sequence[tuple[int, int]]) -> list[str]:
        from launcher.backends.kubernetes.enter.argv import forward

        return forward(self, run, member, ports)

    # runs that others applied

    def carried_with(self, run: str) -> list[CarriedRun]:
        from launcher.backends.kubernetes.carrying import carried_with

        return carried_with(self, run)

    def carried(self, wanted: Callable[[str], bool], store: str) -> Iterator[CarriedRun]:
        from launcher.backends.kubernetes.carrying import carried

        return carried(self, wanted, store)

    def kept(self, run: str, placements: Collection[Placement]) -> bool:
        """By Flux' inventories."""
        from launcher.backends.kubernetes.carrying import holds, listed

        if time.monotonic() - self._listed[0] >= LISTED:
            self._listed = (time.monotonic(), listed(self))
        pods = [placement.container for placement in placements]
        return any(namespace == self.namespace and holds(name, run, pods) for namespace, name in self._listed[1])

    # queues

    def queues(self) -> QueueListing:
        from launcher.backends.kubernetes.queueing import listing

        return listing(self)

    def stop_queue(self, name: str, *, cluster_queue: bool, drain: bool) -> None:
        from launcher.backends.kubernetes.queueing import DRAIN, HOLD, set_policy

        set_policy(self, name, DRAIN if drain else HOLD, cluster_queue=cluster_queue)

    def resume_queue(self, name: str, *, cluster_queue: bool) -> None:
        from launcher.backends.kubernetes.queueing import OPEN, set_policy

        set_policy(self, name, OPEN, cluster_queue=cluster_queue)

    # ending

    def cancel(self, handles: Collection[Handle]) -> None:
        from launcher.backends.kubernetes.deleting import cancel

        cancel(self.api, handles, self.namespace)

    def mine(self) -> Iterator[BackendObservation]:
        """Looks in all namespaces if it may list them, otherwise in its own."""
        snapshot = Snapshot(self.login.context)
        carriers = self.looking.kinds()
        kinds: Iterable[Kind] = (*carriers, *([CHILD_JOB] if JOB_SET in carriers else []), POD)
        for kind in kinds:
            selector = names.JOBSET_NAME if kind is CHILD_JOB else names.SELECTOR
            for space in ("", self.namespace):
                try:
                    for page in self.api.pages(kind.path(space), labelSelector=selector):
                        for item in page.get("items") or ():
                            snapshot.put(kind, item)
                    break
                except ApiRefused as error:
                    if error.status != 403 or space:
                        raise
        yield from snapshot.all(self.api.now())


def _essence(seen: BackendObservation) -> tuple[object, ...]:
    return (seen.handle, seen.active, seen.phase, seen.reason, seen.evidence)
