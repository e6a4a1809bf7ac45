"""From the store to a view, in few requests: only attempt numbers are listed; records are read by their known names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from launcher.errors import NotFound
from launcher.parallel import Threads
from launcher.protocol.records import Beat
from launcher.protocol.view import AttemptView, RunView, add
from launcher.reasons import Reason
from launcher.spec.model import ResolvedJob
from launcher.store.base import Meta, Store, settable
from launcher.store.layout import MANIFEST, RUNS, AttemptKeys, RunKeys

A = TypeVar("A")
B = TypeVar("B")
PARALLEL: Final = 8
FEW: Final = 8  # requests that are not worth threads of their own
PAGE: Final = 1000  # names in one answer to a listing
NEIGHBOURS: Final = 64  # runs of one listing; a run that has ended has about twelve objects
SEEKING: Final = ("s3:", "gs:")  # stores whose lists begin at any key


def read_run(store: Store, run: str, *, full: bool = True) -> RunView:
    """Reads a run from the store. Raises NotFound if the store holds nothing of it.

    `full=False` leaves out records that no decision needs: events, endpoints, heartbeats of ranks that have exited.
    """
    keys = RunKeys(run)
    view = RunView(run, now=store.now(), settable=settable(store))
    numbers = sorted(int(name) for name in store.folders(keys.attempts) if name.isdigit())
    view = _with(store, view, (keys.job, keys.cancel, keys.result))
    if not view.known and not numbers:
        raise NotFound(f"no run `{run}` in {store.url}")
    if view.job is not None and numbers:
        view = _attempts(store, view, view.job, numbers, full)
    if full:
        view = read_events(store, view)
    return view


class RunListings:
    """What runs have, for threads that read one run each: runs that lie side by side in the store have one listing
    together. `now`: the store's clock before all of them."""

    def __init__(self, store: Store, wanted: Iterable[str], there: Iterable[str]) -> None:
        """`there`: all runs of the store, as far as it is known."""
        self._store, self.now = store, store.now()
        self._groups: dict[str, _Neighbours] = {}
        most, chosen = NEIGHBOURS if store.url.startswith(SEEKING) else 1, set(wanted)
        group = _Neighbours()
        for run in sorted(there, key=lambda run: RunKeys(run).prefix):
            if run not in chosen or len(group.runs) == most:
                group = _Neighbours()
            if run in chosen:
                group.runs.append(run)
                self._groups[run] = group

    def take(self, run: str) -> Mapping[str, Meta] | None:
        """The objects of a run. None: it has none, or more than one answer names."""
        group = self._groups[run]
        with group.lock:
            if group.found is None:
                group.found = self._list(group.runs)
            return group.found.pop(run, None)

    def _list(self, runs: Sequence[str]) -> dict[str, dict[str, Meta]]:
        found: dict[str, dict[str, Meta]] = {}
        over: set[str] = set()
        prefix = RunKeys(runs[0]).prefix if len(runs) == 1 else RUNS
        after: str | None = "" if len(runs) == 1 else RunKeys(runs[0]).prefix
        while after is not None:
            after = self._list_on(runs, prefix, after, found, over)
        return {run: metas for run, metas in found.items() if run not in over}

    def _list_on(
        self, runs: Sequence[str], prefix: str, after: str, found: dict[str, dict[str, Meta]], over: set[str]
    ) -> str | None:
        """Lists until the last of the runs, or until one has too many objects; then returns a key behind these."""
        chosen, last = {*runs} - over, RunKeys(runs[-1]).prefix
        for meta in self._store.scan(prefix, after):
            run, slash, _ = meta.key.removeprefix(RUNS).partition("/")
            if slash and RunKeys(run).prefix > last:
                break
            if slash and run in chosen:
                mine = found.setdefault(run, {})
                mine[meta.key] = meta
                if len(mine) == PAGE:
                    over.add(run)
                    return RunKeys(run).prefix[:-1] + "0" if len(runs) > 1 else None  # "0" follows "/"
        return None


class _Neighbours:
    """Runs of one listing."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.lock = threading.Lock()
        self.found: dict[str, dict[str, Meta]] | None = None


class ListedRun(NamedTuple):
    view: RunView
    keys: frozenset[str]  # all objects of the run


def read_listed(store: Store, run: str, listings: RunListings | None = None) -> ListedRun | None:
    """As `read_run`, from a listing of all that the run has, and a request for each record that is there: two for a
    run of one rank that has ended in its first attempt and whose result says what is shown. The last heartbeat of that
    attempt has then its time and what the result says of it. None: one answer does not hold all of the run, or has no
    job."""
    listings = listings or RunListings(store, [run], [run])
    metas = listings.take(run)
    if metas is None or RunKeys(run).job not in metas:
        return None
    view = RunView(run, now=listings.now, settable=settable(store))
    for key in (RunKeys(run).job, RunKeys(run).result):
        view = _with(store, view, [key] if key in metas else [])
    job = view.job
    if job is None:
        return None  # deleted meanwhile
    records, told = list(_records(view, job, metas)), _ended(view, job)
    for key in [key for key, is_read in records if key in told or not is_read]:
        view = add(view, key, told.get(key, b""), metas[key].modified)
    view = _several(store, view, [key for key, is_read in records if is_read and key not in told])
    view = _several(store, view, list(_beats(view, job, metas)))
    return ListedRun(_last_word(view, job, metas), frozenset(metas))


def _ended(view: RunView, job: ResolvedJob) -> dict[str, bytes]:
    """The records of the run's only attempt that its result repeats, by their keys."""
    shown = view.result.shown if view.result is not None else None
    if shown is None or shown.claim is None or shown.exit is None:
        return {}
    (member,) = job.members()
    keys = RunKeys(view.run).attempt(shown.attempt)
    return {keys.claim(member): msgspec.json.encode(shown.claim), keys.exit(member): msgspec.json.encode(shown.exit)}


def _records(view: RunView, job: ResolvedJob, metas: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """(key, whether what it holds is needed) of the records of a listing, but for heartbeats."""
    keys, members = RunKeys(view.run), job.members()
    saves = any(output.kind == "checkpoints" for output in job.outputs.values())
    for key in metas:
        if key == keys.cancel:
            yield key, False
        elif key.startswith(keys.events):
            yield key, True
        elif key.startswith(keys.attempts):
            number, _, rest = key.removeprefix(keys.attempts).partition("/")
            at = keys.attempt(int(number)) if number.isdigit() else None
            match rest.split("/") if at is not None else []:
                case ["claim" | "exit" | "endpoints", name] if name.removesuffix(".json") in members:
                    yield key, True
                case ["formed.json"] | ["broken.json"]:
                    yield key, True
                case ["outputs", name] if name.removesuffix(MANIFEST) in job.outputs:
                    yield key, False
                case ["checkpoints", _, "complete.json"] if saves:
                    yield key, False


def _beats(view: RunView, job: ResolvedJob, metas: Iterable[str]) -> Iterator[str]:
    """The heartbeats that are read: of ranks that have not exited, and of the last attempt."""
    for attempt in view.attempts:
        last = attempt is view.attempts[-1]
        for member in job.members():
            key = RunKeys(view.run).attempt(attempt.number).beat(member)
            wanted = member in attempt.claims and (last or member not in attempt.exits)
            if key in metas and wanted and not (last and _is_told(view, attempt, job, member)):
                yield key


def _is_told(view: RunView, attempt: AttemptView, job: ResolvedJob, member: str) -> bool:
    """Whether exit and result say what the last heartbeat of the newest attempt's leader does."""
    shown = view.result.shown if view.result is not None else None
    return shown is not None and shown.attempt == attempt.number and member == job.members()[0] in attempt.exits


def _last_word(view: RunView, job: ResolvedJob, metas: Mapping[str, Meta]) -> RunView:
    """The view, with the last heartbeat of the newest attempt's leader as the result tells it."""
    leader = job.members()[0]
    last = view.attempts[-1] if view.attempts else None
    meta = metas.get(RunKeys(view.run).attempt(last.number).beat(leader)) if last is not None else None
    if last is None or meta is None or not _is_told(view, last, job, leader):
        return view
    assert view.result is not None
    shown = view.result.shown
    assert shown is not None
    beat = Beat(seq=0, phase="", step=shown.step, total=shown.total, message=shown.message, checkpoint=shown.checkpoint)
    told = replace(last, beats={**last.beats, leader: (beat, meta.modified)})
    return replace(view, attempts=(*view.attempts[:-1], told))


def read_ended(store: Store, run: str) -> RunView | None:
    """A run that has its result, with what its status line needs: no events, no outputs, and of the heartbeats those of
    leaders without exit and of the last attempt's leader. Two requests where its result says what is shown, otherwise
    six for one attempt of one rank. None: it has no result, or no job."""
    keys = RunKeys(run)
    view = _with(store, RunView(run, now=store.now(), settable=settable(store)), [keys.result])
    if view.result is None:
        return None
    told = view.result.shown
    view = _with(store, view, [keys.job])
    job = view.job
    if job is None or told is not None:
        return view if job is not None else None
    members = job.members()
    numbers = sorted(int(name) for name in store.folders(keys.attempts) if name.isdigit())
    view = _several(
        store, view, [key for number in numbers for who in members for key in _ends(keys.attempt(number), who)]
    )
    saves = any(output.kind == "checkpoints" for output in job.outputs.values())
    attempts = []
    for attempt in view.attempts:
        at = keys.attempt(attempt.number)
        last = attempt.number == numbers[-1]
        for who in members:
            if who in attempt.claims and (who not in attempt.exits or (last and who == members[0])):
                view = _with(store, view, [at.beat(who)])
        seen = view.attempt(attempt.number)
        assert seen is not None
        attempts.append(replace(seen, checkpoints=complete_checkpoints(store, at) if saves else ()))
    return replace(view, attempts=tuple(attempts))


def _ends(keys: AttemptKeys, member: str) -> tuple[str, str]:
    return keys.claim(member), keys.exit(member)


def read_events(store: Store, view: RunView, *, few: bool = False) -> RunView:
    """The view with the run's events. `few`: one after the other, for a caller that reads many runs at once."""
    keys = [meta.key for meta in store.scan(RunKeys(view.run).events)]
    for some in [[key] for key in keys] if few else [keys]:
        view = _with(store, view, some)
    return view


def unlisted(store: Store, view: RunView) -> bool:
    """Whether the run has an attempt after those of the view. Whoever ends a run because it has no other attempt asks
    this first: a list of attempts may be false or old, and the claim of the next one is read by its name."""
    if view.job is None:
        return False
    following = RunKeys(view.run).attempt(max((attempt.number for attempt in view.attempts), default=0) + 1)
    claims = [following.claim(member) for member in view.job.members()]
    return any(meta is not None for meta in _each(store, store.head, claims))


def _attempts(store: Store, view: RunView, job: ResolvedJob, numbers: Sequence[int], full: bool) -> RunView:
    members = job.members()
    wanted: list[str] = []
    for number in numbers:
        keys = RunKeys(view.run).attempt(number)
        wanted += [keys.claim(member) for member in members] + [keys.exit(member) for member in members]
        if len(members) > 1:
            wanted += [keys.formed, keys.broken]
            wanted += [keys.endpoint(member) for member in members if _has_ports(job, member)] if full else []
    view = _with(store, view, wanted)
    # exits are read before heartbeats: a heartbeat read after its member had no exit is never out of date
    wanted = []
    for attempt in view.attempts:
        keys = RunKeys(view.run).attempt(attempt.number)
        last = full and attempt.number == numbers[-1]
        wanted += [keys.beat(who) for who in members if who in attempt.claims and (last or who not in attempt.exits)]
    view = _with(store, view, wanted)
    contents = _each(store, lambda attempt: _contents(store, view.run, attempt, job, full), view.attempts)
    return replace(view, attempts=tuple(contents))


def _has_ports(job: ResolvedJob, member: str) -> bool:
    return bool(job.roles[member.rpartition("-")[0]].ports)


def _contents(store: Store, run: str, attempt: AttemptView, job: ResolvedJob, full: bool) -> AttemptView:
    """The attempt with its complete outputs and checkpoints."""
    keys = RunKeys(run).attempt(attempt.number)
    leader = attempt.exits.get(job.members()[0])
    outputs: frozenset[str] = frozenset()
    if full or (leader is not None and leader.reason is Reason.SUCCEEDED):
        outputs = frozenset(name for name in job.outputs if store.head(keys.output_manifest(name)) is not None)
    checkpoints: tuple[int, ...] = ()
    if any(output.kind == "checkpoints" for output in job.outputs.values()):
        checkpoints = complete_checkpoints(store, keys)
    return replace(attempt, outputs=outputs, checkpoints=checkpoints)


def complete_checkpoints(store: Store, keys: AttemptKeys) -> tuple[int, ...]:
    """The steps of the complete checkpoints of an attempt, ascending."""
    steps = sorted(int(name) for name in store.folders(keys.checkpoints) if name.isdigit())
    return tuple(step for step in steps if store.head(keys.checkpoint_complete(step)) is not None)


def _several(store: Store, view: RunView, keys: Sequence[str]) -> RunView:
    """As `_with`, for a caller that reads many runs at once: for a few records a pool of threads would take longer."""
    for some in [keys] if len(keys) > FEW else [[key] for key in keys]:
        view = _with(store, view, some)
    return view


def _with(store: Store, view: RunView, keys: Iterable[str]) -> RunView:
    wanted = list(keys)
    for key, record in zip(wanted, _each(store, store.read, wanted), strict=True):
        if record is not None:
            body, meta = record
            view = add(view, key, body, meta.modified)
    return view


def _each(store: Store, ask: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """The answers, in the order of the items. Requests over a network are sent in parallel."""
    if len(items) < 2 or store.url.startswith("file:"):
        return [ask(item) for item in items]
    with Threads(min(PARALLEL, len(items))) as pool:
        return list(pool.map(ask, items))
