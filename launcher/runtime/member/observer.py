"""Reads a run for one process of it, and makes the facts that decisions need; repeats a request
while the store cannot be reached."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from launcher.errors import NotFound, Unreachable
from launcher.protocol.applied import write_applied
from launcher.protocol.facts import RunFacts, facts
from launcher.protocol.read import read_run
from launcher.protocol.records import Claim, Exit, Placement
from launcher.protocol.view import AttemptView, RunView, add
from launcher.runtime.beating import Clock
from launcher.runtime.process import procs
from launcher.spec.model import ResolvedJob
from launcher.store.base import Store
from launcher.store.layout import RunKeys


class RunObserver:
    """Reads a run as `member` at `placement` sees it. Every method that reads the store raises Unreachable."""

    def __init__(
        self, store: Store, job: ResolvedJob, run: str, member: str, placement: Placement, nonce: str, clock: Clock
    ) -> None:
        self._store, self._job, self._run, self._clock = store, job, run, clock
        self._keys = RunKeys(run)
        self._members = job.members()
        self._member, self._placement, self._nonce = member, placement, nonce
        self._moves: dict[int, tuple[int, float]] = {}  # attempt -> the first heartbeat of its leader that was seen
        # (attempt, member; "" is the attempt itself) -> its last sign of life, and the boot time when that was new
        self._signs: dict[tuple[int, str], tuple[tuple[int, float], float]] = {}
        self._number = 0  # the attempt that this process has a claim in
        self._began = self._looked = clock.boottime()  # the runtime creates its member right after it started

    def read(self) -> RunView:
        """Reads everything that decisions need. Writes job.json if nobody has written it."""
        self._looked = self._clock.boottime()
        try:
            view = read_run(self._store, self._run, full=False)
        except NotFound:
            view = RunView(self._run)
        if view.job is None:  # a rendered object that was applied without `launcher submit` carries its job
            write_applied(self._store, self._run, self._job)
            view = replace(read_run(self._store, self._run, full=False), job=self._job)
        return view

    def look(self, view: RunView, keys: Iterable[str]) -> RunView:
        """The view with a few objects read again."""
        self._looked = self._clock.boottime()
        view = replace(view, now=self._store.now())
        for key in keys:
            record = self._store.read(key)
            if record is not None:
                body, meta = record
                view = add(view, key, body, meta.modified)
        return view

    def wanted(self, number: int, *, after: bool) -> list[str]:
        """The keys that may have changed: before the command, or while waiting `after` it for the others."""
        keys = self._keys.attempt(number)
        leader = self._members[0]
        wanted = [self._keys.result, self._keys.attempt(number + 1).claim(leader)]
        if not after:
            wanted.append(self._keys.cancel)
        if len(self._members) > 1:
            others = [member for member in self._members if member != self._member]
            leads = self._member == leader
            wanted += [keys.broken, *map(keys.exit, others if leads or not after else [leader])]
            if after and not leads:
                wanted.append(keys.beat(leader))
        return wanted

    def facts(self, view: RunView) -> RunFacts:
        """The facts that this process concludes. An attempt's heartbeat has moved if it differs from the first one that
        was read."""
        moved = set()
        for attempt in view.attempts:
            beat = attempt.beats.get(self._members[0])
            mark = (beat[0].seq, beat[1]) if beat else (-1, 0.0)
            if self._moves.setdefault(attempt.number, mark) != mark:
                moved.add(attempt.number)
        if view.settable:
            view = replace(view, watched=self._watched(view))
        age = self._looked - self._began
        return facts(view, self._job, self._placement, self._member, age=age, alive=self._alive, moved=frozenset(moved))

    def _watched(self, view: RunView) -> dict[tuple[int, str], float]:
        """(attempt, member) -> seconds for which its last sign of life has not changed, counted from the end of the
        first reading that showed it to the start of the last reading. This process itself is left out."""
        now, unchanged = self._clock.boottime(), {}
        for attempt in view.attempts:
            for member in ("", *attempt.claims):
                if member == self._member and attempt.number == self._number:
                    continue
                beat = attempt.beats.get(member)
                sign = (beat[0].seq, beat[1]) if beat else (-1, 0.0)
                old = self._signs.get((attempt.number, member))
                if old is None or old[0] != sign:
                    old = self._signs[attempt.number, member] = (sign, now)
                unchanged[attempt.number, member] = max(0.0, self._looked - old[1])
        return unchanged

    def _alive(self, placement: Placement) -> bool | None:
        mine = self._placement
        here = placement.host == mine.host and placement.boot == mine.boot and placement.boot != ""
        if not here or placement.pid <= 0 or placement.kind not in ("process", "machine"):
            return None
        return procs.alive(placement.pid, placement.start, placement.boot)

    def with_me(self, view: RunView, number: int, mine: Exit | None = None, outputs: bool = False) -> RunView:
        """The view with what this process knows about itself: its claim in attempt `number`, its exit, its outputs."""
        self._number = number
        old = view.attempt(number) or AttemptView(number)
        claim = Claim(self._placement, self._nonce, 0.0)
        new = replace(
            old,
            claims={**old.claims, self._member: claim},
            claimed={self._member: view.now, **old.claimed},
            exits={**old.exits, **({self._member: mine} if mine else {})},
            outputs=old.outputs | (frozenset(self._job.outputs) if outputs else frozenset()),
        )
        attempts = {attempt.number: attempt for attempt in (*view.attempts, new)}
        return replace(view, attempts=tuple(attempts[number] for number in sorted(attempts)))


# Requests to a store that may not be reachable for a while.

T = TypeVar("T")


class Retrier:
    """Repeats a request while the store cannot be reached, for up to `patience` seconds or until `interrupted` is set;
    then raises Unreachable. `trouble` is called with each error, and with "" when the store answers again."""

    def __init__(
        self,
        clock: Clock,
        patience: float,
        poll: float,
        interrupted: threading.Event,
        log: Callable[[str], None],
        trouble: Callable[[str], None],
    ) -> None:
        self._clock, self._patience, self._poll, self._interrupted = clock, patience, poll, interrupted
        self._log, self.trouble = log, trouble

    def __call__(self, ask: Callable[[], T]) -> T:
        since = self._clock.boottime()
        failed = False
        while True:
            try:
                answer = ask()
                if failed:
                    self.trouble("")
                return answer
            except Unreachable as error:
                failed = True
                self.trouble(str(error))
                if self._clock.boottime() - since > self._patience or self._interrupted.is_set():
                    raise
                self._log(f"store: {error}")
                self._clock.wait(self._interrupted, self._poll)
