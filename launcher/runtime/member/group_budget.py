"""Keeps the ceiling of a group's cost while its runs run: the leader of each run adds up what all of them have cost,
and ends its own command before they cost more.

One sibling is read after the other, one each `timing.beat`. Between two sights a sibling is taken to cost money all the
time, so the sum is never too small; when it reaches the ceiling everything is read anew, and only that decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from launcher.errors import NotFound
from launcher.protocol import decide
from launcher.protocol.ceiling import HOUR, GroupCeiling, Spending, ceiling_of, ceilings, cost, spending
from launcher.protocol.read import read_run
from launcher.protocol.steps import Stop
from launcher.runtime.beating import Clock
from launcher.runtime.process.threads import ResilientThread
from launcher.spec.model import BUDGET_MARGIN, ResolvedJob
from launcher.store.base import Store
from launcher.store.find import read_group

LIST_AGAIN: Final = 60.0  # seconds between two looks for a ceiling that was given after the run had begun


class GroupBudget:
    """The ceilings of one run. `held`: seconds for which the run has held its machines; `halt`: told once."""

    def __init__(
        self,
        store: Store,
        job: ResolvedJob,
        run: str,
        held: Callable[[], float],
        *,
        clock: Clock,
        log: Callable[[str], None],
        halt: Callable[[Stop], None],
    ) -> None:
        self._store, self._job, self._run, self._held = store, job, run, held
        self._clock, self._halt = clock, halt
        self._over = threading.Event()
        self._groups: list[_GroupSum] = []
        self._listed = 0.0
        self._thread = ResilientThread("group-budget", self._next, log, pause=min(job.timing.beat, 1.0))

    def begin(self) -> Stop | None:
        """Reads the ceilings; then keeps them in a thread of its own. A Stop when one is reached already. Raises
        Unreachable."""
        stop = self._list() or self._exact(self._groups)
        if stop is None and not self._thread.is_alive():
            self._thread.start()
        return stop

    def finish(self) -> None:
        self._over.set()

    def _list(self) -> Stop | None:
        found = ceilings(self._store, self._run)
        self._listed = self._clock.boottime()
        known = {each.ceiling.group: each for each in self._groups}
        new = [_GroupSum(self._store, self._run, each) for each in found if each.group not in known]
        for each in found:
            if each.group in known:
                known[each.group].ceiling = each
        self._groups += new
        return self._exact(new)

    def _next(self) -> bool:
        rest = self._job.timing.beat if self._groups else LIST_AGAIN
        if self._clock.wait(self._over, rest):
            return False
        stop = None
        if self._clock.boottime() - self._listed >= LIST_AGAIN:
            stop = self._list()
        for group in self._groups:
            group.look(self._clock.boottime())
        near = [group for group in self._groups if self._reached(group) is not None]
        stop = stop or self._exact(near)
        if stop is not None:
            self._halt(stop)
        return stop is None

    def _exact(self, groups: Sequence[_GroupSum]) -> Stop | None:
        for group in groups:
            group.read(self._clock.boottime())
        return next(filter(None, map(self._reached, groups)), None)

    def _reached(self, group: _GroupSum) -> Stop | None:
        kept = 2 * self._job.limits.grace + BUDGET_MARGIN
        own = cost(self._held() + kept, group.ceiling.hourly)
        spent = own + group.others(self._clock.boottime())
        return decide.ceiling(spent, group.ceiling.amount, group.ceiling.currency)


class _GroupSum:
    """What the other runs of a group have cost."""

    def __init__(self, store: Store, run: str, ceiling: GroupCeiling) -> None:
        self.ceiling = ceiling
        self._store, self._run = store, run
        self._siblings: tuple[str, ...] = ()
        self._known: dict[str, tuple[Spending, float]] = {}  # with when it was read
        self._hourly: dict[str, Decimal] = {}
        self._turn = 0

    def others(self, now: float) -> Decimal:
        """An upper bound of what the other runs have cost, and of what it costs to stop those that still run. `now`:
        boot time."""
        return sum(
            (
                each.spent + each.kept + each.hourly * Decimal(repr(max(now - at, 0.0))) / HOUR
                for each, at in self._known.values()
            ),
            Decimal(0),
        )

    def read(self, now: float) -> None:
        """Reads the ceiling and all siblings anew. Raises Unreachable."""
        self.ceiling = ceiling_of(self._store, self._run, self.ceiling.group) or self.ceiling
        record = read_group(self._store, self.ceiling.group)
        self._siblings = tuple(each for each in record.runs if each != self._run) if record is not None else ()
        for sibling in self._siblings:
            if not self._ended(sibling):
                self._read(sibling, now)

    def look(self, now: float) -> None:
        """Reads the next sibling that may still cost something."""
        living = [each for each in self._siblings if not self._ended(each)]
        if living:
            self._turn += 1
            self._read(living[self._turn % len(living)], now)

    def _ended(self, sibling: str) -> bool:
        """Nothing of what is known of it will change."""
        return sibling in self._known and not self._known[sibling][0].hourly

    def _read(self, sibling: str, now: float) -> None:
        if sibling not in self._hourly:
            known = ceiling_of(self._store, sibling, self.ceiling.group)
            if known is None:
                return  # it had ended before there was a ceiling
            self._hourly[sibling] = known.hourly
        try:
            view = read_run(self._store, sibling, full=False)
        except NotFound:
            return
        self._known[sibling] = spending(view, self._hourly[sibling]), now
