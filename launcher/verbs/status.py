"""Status: reads finished runs from the cache, the others from the store, and writes missing final records."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from launcher.decoding import decode_record, unpacker
from launcher.errors import BadRecord, NotFound, SlipwayError, Unreachable
from launcher.parallel import Threads
from launcher.protocol import decide
from launcher.protocol.finish import finish, is_own_placement, onlookers, seconds_silent
from launcher.protocol.fold import State, Status, fold
from launcher.protocol.read import read_ended, read_run
from launcher.protocol.records import Result
from launcher.protocol.view import RunView
from launcher.reasons import Reason
from launcher.results.run_cost import HeldTime, held_times
from launcher.spec.model import Limits, backend_order
from launcher.spec.prices.rates import PricedRun
from launcher.spec.resolve.matrix_inputs import label_of
from launcher.store.base import Store, settable
from launcher.store.layout import RUNS, WORKS, RunKeys, work_run
from launcher.store.proof import runs_of
from launcher.userdata.cache import Cache
from launcher.userdata.record_cache import Memory
from launcher.verbs.ask_backend import BackendOf, BackendReport, ask_backend, note_if_applied
from launcher.verbs.quick_read import quick_read

FINAL = ("succeeded", "failed", "cancelled")
DAMAGED = "damaged"  # a record of the run cannot be read: what it does, or how it ended, is not known
STATES = ("queued", "starting", "running", "stopping", *FINAL, str(State.UNKNOWN), DAMAGED)
VERIFIED = 16  # cached rows that each reading compares with the store
PARALLEL = 16
FAR = 64  # requests at once to a store over a network, where each waits for its answer
WRITER = "status"
SILENT = 4  # heartbeats that a rank misses before its backend is asked about it


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run as `status` shows it, and as the cache stores a finished one. Times are seconds since the epoch."""

    run: str
    name: str
    state: str
    backend: str = ""
    labels: dict[str, str] = {}
    attempt: int = 0
    attempts: int = 0
    phase: str = ""
    step: float | None = None
    total: float | None = None
    message: str = ""
    eta: float | None = None  # seconds
    checkpoint: int | None = None
    reason: str = ""
    detail: str = ""
    created: float | None = None  # when job.json was written, by the store's clock
    ended: float | None = None
    running: float = 0.0  # seconds, summed over all attempts
    stale: bool = False
    lost: int = 0  # bytes of logs and metrics that were lost because a disk was full
    left_out: int = 0  # files in outputs that could not be stored
    resumed: str = ""  # the run whose checkpoint it goes on from although other packages made it
    nonce: str = ""  # the result's nonce, which identifies it
    repair: str = ""  # the command that completes the run's interrupted submit; without it the run waits for ever
    priced: PricedRun | None = None  # what its price depends on
    held: tuple[HeldTime, ...] = ()  # its attempts
    limits: Limits = Limits()
    variant: str = ""  # what tells it from the other runs of its matrix: `lr=1e-05,seed=0`

    @property
    def final(self) -> bool:
        return self.state in (*FINAL, State.UNKNOWN)

    @property
    def progress(self) -> float | None:
        """In [0, 1]; None when the total is unknown."""
        if self.step is None or not self.total or self.total <= 0:
            return None
        return min(1.0, max(0.0, self.step / self.total))


def to_line(view: RunView, status: Status) -> Line:
    job, result = view.job, view.result
    # the last heartbeat of a run that succeeded may be older than its last steps, so its step is shown only at 100 %
    told = status.state is not State.SUCCEEDED or status.step == status.total
    return Line(
        run=view.run,
        name=status.name,
        state=status.state,
        backend=backend_order(job)[view.turn] if job is not None else "",
        labels=dict(job.labels) if job is not None else {},
        attempt=status.attempt or 0,
        attempts=status.attempts,
        phase=status.phase or "",
        step=status.step if told else None,
        total=status.total if told else None,
        message=status.message if told else "",
        eta=status.eta,
        checkpoint=status.checkpoint,
        reason=str(status.reason or ""),
        detail=status.detail or "",
        created=view.made if view.made is not None else status.started,
        ended=status.ended,
        running=status.running,
        stale=status.stale,
        lost=status.lost,
        left_out=status.left_out,
        resumed=job.resume or "" if job is not None and job.resume_made_with else "",
        nonce=result.nonce if result is not None else "",
        priced=PricedRun.of(job) if job is not None else None,
        held=held_times(view),
        limits=job.limits if job is not None else Limits(),
        variant=label_of(job.name, job.variant) if job is not None else "",
    )


def read_line(
    store: Store,
    run: str,
    backend_of: BackendOf | None = None,
    memory: Memory | None = None,
    works: RecordedWorks | None = None,
) -> tuple[RunView, Line]:
    """Reads one run from the store; with `backend_of`, a missing result is written first. With `memory` a run costs few
    requests, and its view has only what its line needs."""
    view, status = _few_requests(store, run, memory) if memory is not None else _in_full(store, run)
    said = BackendReport(None)
    if backend_of is not None and (_silent(view) or _incomplete(works or RecordedWorks(store), view, status)):
        if view.result is None:
            said = ask_backend(store, view, backend_of)
            note_if_applied(store, view, said)
        result = None
        if view.result is not None or _ends(view, said):
            with _may_only_read():
                result = finish(
                    store,
                    run,
                    backend_active=said.active,
                    here=said.here,
                    dead=said.dead,
                    writer=WRITER,
                    evidence=said.reason,
                    message=said.message,
                    absent=said.absent,
                )
        if result is not None:
            view, status = _in_full(store, run)
    line = to_line(view, status)
    if backend_of is not None and (told := _may_move(view, said)):
        said = said._replace(message="; ".join(filter(None, (said.message, told))))
    if view.result is None and said.message:  # why it does not start or restart, or what hangs
        # a silent attempt counts as lost, and an unreachable store explains the silence
        reason = "" if said.reason is Reason.STORE_UNREACHABLE else line.reason
        reason = reason or str(said.reason or "")
        line = msgspec.structs.replace(line, reason=reason, detail=said.message, repair=said.repair)
    return view, line


def _may_move(view: RunView, said: BackendReport) -> str:
    """What to do about a run that its next backend may take, or that has moved and is not there yet; "" otherwise."""
    if view.job is None or not view.job.alternatives or view.result is not None or view.cancelled:
        return ""
    names = backend_order(view.job)
    if view.turn and not view.since_move and said.seen is None and said.active is False:
        return f"moved to {names[view.turn]}, which does not have it yet: launcher move {view.run}"
    ends = said.reason if said.active is False else None
    step = decide.move(
        onlookers(view, view.job, said.dead), said.active, ends, own=said.active is not None,
        absent=seconds_silent(view) if said.absent else None,
    )  # fmt: skip
    return f"{step.reason}: it may go on at {names[view.turn + 1]}: launcher move {view.run}" if step else ""


def _in_full(store: Store, run: str) -> tuple[RunView, Status]:
    view = read_run(store, run)
    return view, fold(view)


def _few_requests(store: Store, run: str, memory: Memory) -> tuple[RunView, Status]:
    """A run that this machine has not seen has mostly ended: its result is asked for first. One that was seen open is
    asked for its heartbeats first."""
    seen = memory.known(RunKeys(run).job) is not None
    found = _alive(store, run, memory) if seen else None
    ended = read_ended(store, run) if found is None else None
    if ended is not None:
        return ended, fold(ended)
    if found is None and not seen:
        found = _alive(store, run, memory)
    return found or _in_full(store, run)


def _alive(store: Store, run: str, memory: Memory) -> tuple[RunView, Status] | None:
    """Reads a run that waits, or whose ranks all send heartbeats, in few requests. None: it must be read in full."""
    view = quick_read(store, run, memory)
    if view is None or _silent(view):
        return None
    status = fold(view)
    return None if status.state in (State.STOPPING, *FINAL) else (view, status)


def _ends(view: RunView, said: BackendReport) -> bool:
    """Whether `finish` would write something, judged by this view. `finish` itself reads the run again before it
    writes."""
    if view.job is None:
        return True
    own = is_own_placement(view, said.here)
    absent = seconds_silent(view) if said.absent else None
    ranks = onlookers(view, view.job, said.dead)
    return decide.finish(ranks, said.active, evidence=said.reason, own=own, absent=absent) is not None


def _incomplete(works: RecordedWorks, view: RunView, status: Status) -> bool:
    """Whether a record may be missing: the final record, or the works/ record of a run that succeeded. The run may have
    ended when its highest attempt has exited or is silent for too long, when it was cancelled, or when it has no
    attempt: then only the backend can know that it will never start."""
    if view.result is None:
        exited = not view.since_move or bool(view.attempts[-1].exits)
        return status.stale or exited or view.cancelled
    work = view.result.work if view.result.adopted is None else ""
    return view.result.outcome == "succeeded" and bool(work) and not works.there(work_run(work, view.run))


def _silent(view: RunView) -> bool:
    """Whether a rank of the highest attempt misses heartbeats. Long before the attempt counts as dead, its backend may
    know why: a lost node, a pod that hangs."""
    if view.result is not None or view.job is None or not view.since_move:
        return False
    last, patience = view.attempts[-1], SILENT * view.job.timing.beat
    beats = [last.seen(member) for member in last.claims if member not in last.exits]
    return any(beat is not None and view.now - beat > patience for beat in beats)


class RecordedWorks:
    """Which works/ records there are. `listed`: from one listing, for a call about many runs; a record that the listing
    lacks is asked for by its name."""

    def __init__(self, store: Store, *, listed: bool = False) -> None:
        self._store, self._listed = store, listed
        self._keys: set[str] | None = None
        self._lock = allocate_lock()

    def there(self, key: str) -> bool:
        if self._listed:
            with self._lock:
                if self._keys is None:
                    self._keys = {meta.key for meta in self._store.scan(WORKS)}
            if key in self._keys:
                return True
        return self._store.head(key) is not None


@contextmanager
def _may_only_read() -> Iterator[None]:
    """Of a user who may only read a store, the record stays missing. An outage is still raised."""
    try:
        yield
    except BadRecord:
        pass
    except Unreachable as error:
        if not isinstance(error.__cause__, PermissionError):
            raise


def read_lines(
    store: Store, runs: Sequence[str], *, cache: Cache, backend_of: BackendOf | None = None
) -> tuple[list[Line], list[str]]:
    """(the lines of `runs` in their order, the errors of those that could not be read). Finished runs are read once and
    then cached."""
    cached = verified(store, runs, cache)
    missing = [run for run in runs if run not in cached]
    problems: list[str] = []
    memory = Memory(store, cache)
    if missing:
        memory.load(RUNS)

    # a folder answers a question for one file sooner than it is listed
    works = RecordedWorks(store, listed=len(missing) > VERIFIED and not settable(store))

    def read(run: str) -> Line | None:
        try:
            return read_line(store, run, backend_of, memory, works)[1]
        except NotFound:
            return None  # deleted meanwhile, or the prefix holds no run
        except Unreachable:
            raise
        except SlipwayError as error:
            problems.append(f"{run}: {error}")
            return None

    with Threads(PARALLEL if settable(store) else FAR) as pool:
        fresh = {line.run: line for line in pool.map(read, missing) if line is not None}
    # a newer launcher, which knows the outcome, has the same cache
    cache.put(store.url, [(run, msgspec.msgpack.encode(line)) for run, line in fresh.items() if line.state in FINAL])
    for run in missing:
        if run not in fresh or fresh[run].final:
            memory.forget(run)
    memory.keep()
    lines = cached | fresh
    return [lines[run] for run in runs if run in lines], sorted(problems)


def damaged(problem: str) -> Line:
    """The line of a run that could not be read; `problem`: as `read_lines` returns it."""
    run, _, why = problem.partition(": ")
    return Line(run, run.rpartition("-")[0], DAMAGED, detail=why)


def verified(store: Store, runs: Iterable[str], cache: Cache) -> dict[str, Line]:
    """The cached lines of `runs`, if the store is still the one that they were read from."""
    wanted = set(runs)
    row_of = unpacker(Line).decode
    try:
        cached = {run: row_of(row) for run, row in cache.get(store.url).items() if run in wanted}
    except msgspec.MsgspecError:
        cache.forget(store.url)
        return {}
    if not cached:
        return {}
    import random

    sample = random.sample(sorted(cached), min(VERIFIED, len(cached)))

    def same(run: str) -> bool:
        stored = store.read(RunKeys(run).result)
        try:
            return stored is not None and decode_record(stored[1].key, stored[0], Result).nonce == cached[run].nonce
        except Unreachable:
            raise
        except SlipwayError:
            return False

    with Threads(PARALLEL) as pool:
        holds = all(pool.map(same, sample))
    if not holds:
        cache.forget(store.url)
        return {}
    return cached


def list_runs(store: Store) -> list[str]:
    """The runs of the store. Raises Unreachable, also for an empty list that cannot be true."""
    return runs_of(store)


def matches(line: Line, labels: Mapping[str, str | None], states: Sequence[str]) -> bool:
    """Whether a run has all the labels (None: any value) and one of the states."""
    if states and line.state not in states:
        return False
    return all(key in line.labels and value in (None, line.labels[key]) for key, value in labels.items())
