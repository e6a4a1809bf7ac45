"""The ceiling of a group as one leader keeps it, with a clock that the test moves, and as submit writes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from launcher.backends.base import BackendObservation, Handle, Rendered
from launcher.errors import BadInput
from launcher.protocol.ceiling import GroupCeiling, Spending, ceilings, spending, write_ceilings
from launcher.protocol.read import read_run
from launcher.protocol.records import Beat, Claim, Placement
from launcher.protocol.steps import Stop
from launcher.reasons import Reason
from launcher.runtime.member.group_budget import LIST_AGAIN, GroupBudget
from launcher.spec.hashing import encode_job, run_hash, run_id
from launcher.spec.model import BUDGET_MARGIN, Limits, ResolvedJob
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.find import GroupRecord
from launcher.store.layout import RunKeys
from launcher.store.layout import group as group_key
from launcher.verbs.estimate import CeilingPlan, plan_ceiling
from launcher.verbs.submit import submit
from tests.support.crashing import Crashed, CrashingStore
from tests.support.fakerun import FakeAttempt, write_run
from tests.support.jobs import group, job

GROUP = "g-0123456789ab"
HOURLY = Decimal(3600)  # a USD a second
KEPT = BUDGET_MARGIN + 4.0  # USD, with a grace of 2 s


class SetClock:
    """`at`: what the test says. A wait ends at once."""

    def __init__(self) -> None:
        self.at = 1000.0

    def time(self) -> float:
        return self.at

    def boottime(self) -> float:
        return self.at

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.is_set()


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store", sync=False)


def of_group(store: Store, amount: float, *jobs: ResolvedJob) -> list[str]:
    runs = [run_id(one) for one in jobs]
    for one in jobs:
        store.create(RunKeys(run_id(one)).job, encode_job(one))
    store.create(group_key(GROUP), msgspec.json.encode(GroupRecord(GROUP, tuple(runs))))
    allow(store, amount, runs)
    return runs


def allow(store: Store, amount: float, runs: Sequence[str]) -> None:
    write_ceilings(store, GROUP, Decimal(str(amount)), "USD", dict.fromkeys(runs, HOURLY), runs)


class Leader:
    """A budget, without its thread: `look` is one round of it."""

    def __init__(self, store: Store, one: ResolvedJob) -> None:
        self.clock, self.stops, self.held = SetClock(), list[Stop](), 0.0
        self.budget = GroupBudget(
            store, one, run_id(one), lambda: self.held, clock=self.clock, log=print, halt=self.stops.append
        )
        self.budget._thread.is_alive = lambda: True  # type: ignore[method-assign]

    def look(self, seconds: float) -> Stop | None:
        self.clock.at += seconds
        self.held += seconds
        self.budget._next()
        return self.stops[-1] if self.stops else None


def test_a_sibling_that_waits_counts_only_once_it_has_begun(folder: Store) -> None:
    """Between two sights of it, it is taken to run; at the ceiling it is looked at again."""
    mine, waiting = job("mine"), job("waiting")
    of_group(folder, KEPT + 100, mine, waiting)
    leader = Leader(folder, mine)
    assert leader.budget.begin() is None
    for _ in range(9):
        assert leader.look(10.0) is None
    stop = leader.look(10.0)
    assert stop is not None
    assert stop.reason is Reason.BUDGET
    assert f"may cost {KEPT + 100} USD together" in stop.message


def test_a_sibling_that_runs_counts_with_what_stopping_it_costs(folder: Store) -> None:
    mine, other = job("mine"), job("other")
    of_group(folder, 2 * KEPT + 100, mine, other)
    keys = RunKeys(run_id(other)).attempt(1)
    folder.create(keys.claim("main-0"), msgspec.json.encode(Claim(Placement("process", "there"), "n", 0.0)))
    folder.put(keys.beat("main-0"), msgspec.json.encode(Beat(1, "running", held=60.0)))
    leader = Leader(folder, mine)
    assert leader.budget.begin() is None
    assert leader.look(30.0) is None  # 60 + 30, and what is kept for both
    assert leader.look(11.0) is not None


def test_a_ceiling_that_is_changed_while_the_runs_run(folder: Store) -> None:
    """One that is raised counts before anything is stopped; one that is lowered, or new, within a minute."""
    mine = job("mine")
    runs = of_group(folder, KEPT + 100, mine)
    leader = Leader(folder, mine)
    assert leader.budget.begin() is None
    allow(folder, KEPT + 1000, runs)
    assert leader.look(150.0) is None
    allow(folder, KEPT + 180, runs)
    assert leader.look(LIST_AGAIN / 2) is not None or leader.look(LIST_AGAIN / 2) is not None
    assert len(list(folder.scan(RunKeys(runs[0]).events))) == 3
    allow(folder, KEPT + 180, runs)  # as it is: nothing is written
    assert len(list(folder.scan(RunKeys(runs[0]).events))) == 3

    late = job("late")
    folder.create(RunKeys(run_id(late)).job, encode_job(late))
    other = Leader(folder, late)
    assert other.budget.begin() is None
    assert other.look(50.0) is None
    allow(folder, KEPT + 1, [run_id(late)])
    assert other.look(LIST_AGAIN) is not None


def test_what_a_run_has_cost(file_store: Store) -> None:
    """By hand: an attempt that held its machine for 100 s, ended, and one of 40 s: 140 s at 36 USD an hour are 1.40."""
    attempts = [FakeAttempt(started=0.0, ended=100.0), FakeAttempt(started=200.0, ended=240.0)]
    ended = write_run(file_store, job("ended", store=file_store.url), attempts)
    assert spending(read_run(file_store, ended), Decimal(36)) == Spending(Decimal("1.4"))
    waiting = job("waiting", store=file_store.url)
    file_store.create(RunKeys(run_id(waiting)).job, encode_job(waiting))
    assert spending(read_run(file_store, run_id(waiting)), Decimal(36)) == Spending(hourly=Decimal(36))


class Queue:
    """A backend that remembers which ceilings a run had when it was given to it."""

    place = "here"

    def __init__(self, store: Store) -> None:
        self.store, self.given = store, dict[str, list[GroupCeiling]]()

    def render(self, jobs: Sequence[ResolvedJob]) -> Rendered:
        return Rendered({run_id(one): "" for one in jobs}, {run_id(one): run_id(one) for one in jobs})

    def submit(self, rendered: Rendered, jobs: Sequence[ResolvedJob]) -> Mapping[str, Handle]:
        for one in jobs:
            self.given.setdefault(run_id(one), ceilings(self.store, run_id(one)))
        return {run_id(one): Handle(run_id(one), "here", run_id(one), run_hash(one)) for one in jobs}

    def look_up(self, run: str) -> BackendObservation | None:
        return None

    def cancel(self, handles: object) -> None: ...

    def watch(self, *arguments: object) -> Iterator[BackendObservation]:
        return iter(())

    logs = mine = here = dead = watch


def test_a_submit_that_dies_anywhere_starts_no_run_without_its_ceiling(tmp_path: Path) -> None:
    operations = 1000
    for at in range(operations):
        store = FileStore(tmp_path / str(at), sync=False)
        jobs = group(job("one"), job("two"))
        plan = CeilingPlan(Decimal(200), "USD", {run_id(one): HOURLY for one in jobs.runs})
        queue = Queue(store)
        dying = CrashingStore(store, at, "before" if at % 2 else "after")
        try:
            submit(jobs, dying, queue, ceiling=plan)  # type: ignore[arg-type]
        except Crashed:
            submit(jobs, store, queue, ceiling=plan)  # type: ignore[arg-type]
        wanted = [GroupCeiling(jobs.id, Decimal(200), "USD", HOURLY)]
        assert queue.given == {run_id(one): wanted for one in jobs.runs}
        if not dying.dead:
            assert at > 10
            return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize(
    ("ceiling", "prices", "message"),
    [
        ("5 USD", {"node": (10.0, "USD")}, None),
        ("five", {"node": (10.0, "USD")}, "--ceiling: `five` is not an amount"),
        ("5 EUR", {"node": (10.0, "USD")}, "one is priced in USD, the ceiling is in EUR"),
        ("0.3 USD", {"node": (10.0, "USD")}, r"0.3 USD pays for nothing; allowed: more than 0.36 USD"),
    ],
)
def test_what_a_ceiling_must_be(ceiling: str, prices: dict[str, tuple[float, str]], message: str | None) -> None:
    """Two runs of 10 USD an hour, each with 64 s that are kept back: 0.3556 USD."""
    both = group(job("one", limits=Limits(grace=2.0)), job("two", limits=Limits(grace=2.0)))
    if message is None:
        assert plan_ceiling(both, prices, ceiling).hourly == {run_id(one): Decimal(10) for one in both.runs}
        return
    with pytest.raises(BadInput, match=message):
        plan_ceiling(both, prices, ceiling)
