"""The shell around the decisions: a store that is away, a machine that slept, waiting, being asked to stop."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.errors import Unreachable
from launcher.protocol.read import read_run
from launcher.protocol.records import Exit, Placement
from launcher.reasons import EXIT_AGAIN, EXIT_PREEMPTED, Reason
from launcher.runtime.beating import SystemClock
from launcher.runtime.member.member import Leave, Member, Started
from launcher.runtime.member.peers import wait_endpoints
from launcher.spec.hashing import run_id
from launcher.spec.model import Budget, ResolvedJob, Role, Timing
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.contract.protocol.drive import LIVING, job, placement
from tests.support.waiting import HANGS


class AwayStore:
    """A store that can be away."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.url = inner.url
        self.away = False

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise Unreachable("the store is away")
        return getattr(self._inner, name)


class Sleeper(SystemClock):
    """A machine that can sleep: CLOCK_BOOTTIME goes on meanwhile."""

    slept = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.slept


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store", sync=False)


def begun(store: Store, made: Any, **more: Any) -> Member:
    at = placement()
    LIVING.add(at.pid)
    member = Member(store, made, "main-0", at, **more)
    assert isinstance(member.start(), Started)
    assert member.before_command() is None
    return member


def test_a_store_away_for_less_than_the_fence_ends_nothing(folder: Store) -> None:
    store = AwayStore(folder)
    lines: list[str] = []
    member = begun(store, job(folder), log=lines.append)
    store.away = True
    while not lines:
        time.sleep(0.01)
    store.away = False
    assert not member.stopped.wait(0.2)
    assert member.end(Exit("main-0", Reason.SUCCEEDED), outputs_done=True) == 0
    assert lines[0] == "store: the store is away"


def test_a_store_away_at_the_end_is_waited_for(folder: Store) -> None:
    store = AwayStore(folder)
    member = begun(store, job(folder))
    store.away = True
    back = threading.Timer(0.3, lambda: setattr(store, "away", False))
    back.start()
    assert member.end(Exit("main-0", Reason.SUCCEEDED), outputs_done=True) == 0
    back.join()


def test_a_store_away_for_longer_than_the_fence_ends_the_command(folder: Store) -> None:
    store = AwayStore(folder)
    member = begun(store, job(folder, stale=0.5))
    store.away = True
    assert member.stopped.wait(HANGS)
    assert member.stop is not None
    assert member.stop.reason is Reason.STORE_UNREACHABLE
    assert member.end(Exit("main-0", Reason.STORE_UNREACHABLE), outputs_done=False) == EXIT_AGAIN


def test_a_machine_that_slept_too_long_fences_itself_though_the_store_is_there(folder: Store) -> None:
    clock = Sleeper()
    member = begun(folder, job(folder, stale=600.0), clock=clock)
    assert member.should_stop() is None
    clock.slept = 500.0
    assert member.stopped.wait(HANGS)
    assert member.stop is not None
    assert member.stop.reason is Reason.STORE_UNREACHABLE
    assert member.end(Exit("main-0", Reason.STORE_UNREACHABLE), outputs_done=False) == EXIT_AGAIN


def test_a_start_without_a_store_leaves_with_75(folder: Store) -> None:
    store = AwayStore(folder)
    store.away = True
    left = Member(store, job(folder, stale=0.1), "main-0", placement()).start()
    assert isinstance(left, Leave)
    assert (left.code, left.reason) == (EXIT_AGAIN, Reason.STORE_UNREACHABLE)


def test_a_waiting_start_ends_at_sigterm_and_after_stale(folder: Store) -> None:
    made = job(folder, stale=0.4)
    first = begun(folder, made)
    waiting = Member(folder, made, "main-0", first.placement)
    threading.Timer(0.1, waiting.interrupt).start()
    left = waiting.start()
    assert isinstance(left, Leave)
    assert (left.code, left.reason) == (EXIT_PREEMPTED, Reason.PREEMPTED)
    left = Member(folder, made, "main-0", first.placement).start()
    assert isinstance(left, Leave)
    assert (left.code, left.reason) == (EXIT_AGAIN, Reason.INFRASTRUCTURE)
    assert first.end(Exit("main-0", Reason.SUCCEEDED), outputs_done=True) == 0


def test_the_deadline_counts_all_attempts(folder: Store) -> None:
    made = msgspec.structs.replace(job(folder, retries=1))
    made = msgspec.structs.replace(made, limits=msgspec.structs.replace(made.limits, deadline=100.0))
    first = begun(folder, made)
    assert first.end(Exit("main-0", Reason.PREEMPTED, running=60.0), outputs_done=False) == EXIT_PREEMPTED
    second = begun(folder, made)
    second.beat_state.running = 39.0
    assert not second.stopped.wait(0.15)
    second.beat_state.running = 41.0
    assert second.stopped.wait(HANGS)
    assert second.stop is not None
    assert second.stop.reason is Reason.DEADLINE
    assert second.end(Exit("main-0", Reason.DEADLINE, running=41.0), outputs_done=False) == 78
    result = read_run(folder, run_id(made)).result
    assert result is not None
    assert (result.outcome, result.reason, result.running) == ("failed", Reason.DEADLINE, 101.0)


def test_the_budget_counts_all_attempts_and_no_further_one_begins(folder: Store) -> None:
    """3,600 USD per hour are 1 USD per second: 220 USD pay for 220 s, of which 60 s and twice the grace are kept."""
    made = job(folder, retries=5)
    limits = msgspec.structs.replace(made.limits, grace=0.0, budget=Budget(220.0, "USD", 3600.0))
    made = msgspec.structs.replace(made, limits=limits, timing=Timing(beat=0.05))
    assert made.limits.paid_seconds == 160.0
    first = begun(folder, made)
    assert first.end(Exit("main-0", Reason.PREEMPTED), outputs_done=False) == EXIT_PREEMPTED
    held_for(folder, made, 1, 100.0)
    machine = Sleeper()
    second = begun(folder, made, clock=machine)
    machine.slept = 45.0
    assert not second.stopped.wait(0.15)
    machine.slept = 60.0
    assert second.stopped.wait(HANGS)
    assert second.stop is not None
    assert second.stop.reason is Reason.BUDGET
    assert second.end(Exit("main-0", Reason.BUDGET), outputs_done=False) == 78
    result = read_run(folder, run_id(made)).result
    assert result is not None
    assert (result.outcome, result.reason) == ("failed", Reason.BUDGET)


def test_a_retry_never_begins_beyond_the_budget(folder: Store) -> None:
    made = job(folder, retries=5)
    limits = msgspec.structs.replace(made.limits, grace=0.0, budget=Budget(220.0, "USD", 3600.0))
    made = msgspec.structs.replace(made, limits=limits, timing=Timing(beat=0.05))
    first = begun(folder, made)
    assert first.end(Exit("main-0", Reason.PREEMPTED), outputs_done=False) == EXIT_PREEMPTED
    held_for(folder, made, 1, 160.0)
    LIVING.clear()
    left = Member(folder, made, "main-0", placement()).start()
    assert isinstance(left, Leave)
    assert left.code == 78
    view = read_run(folder, run_id(made))
    assert view.result is not None
    assert (view.result.reason, len(view.attempts)) == (Reason.BUDGET, 1)


def held_for(store: Store, made: ResolvedJob, number: int, seconds: float) -> None:
    """Says of an attempt that it has held its machine for so long."""
    key = RunKeys(run_id(made)).attempt(number).exit("main-0")
    ended = msgspec.json.decode(store.get(key), type=Exit)
    store.put(key, msgspec.json.encode(msgspec.structs.replace(ended, held=seconds)))


def test_endpoints_of_a_role_reach_the_other(folder: Store) -> None:
    made = job(folder)
    env = Role(command=("y",), replicas=2, ports={"http": 0})
    agent = Role(command=("x",), leader=True, needs=("env",))
    made = msgspec.structs.replace(made, roles={"agent": agent, "env": env})
    members = {name: Member(folder, made, name, placement()) for name in made.members()}
    LIVING.update(member.placement.pid for member in members.values())
    for member in members.values():
        assert isinstance(member.start(), Started)
    found: list[Any] = []
    waiting = threading.Thread(
        target=lambda: found.append(members["agent-0"].form() or wait_endpoints(members["agent-0"], ["env"]))
    )
    waiting.start()
    for rank in (1, 0):
        assert members[f"env-{rank}"].form() is None
        members[f"env-{rank}"].publish_endpoint({"http": f"host:{8000 + rank}"})
    waiting.join(10)
    assert [endpoint.ports["http"] for endpoint in found[0]["env"]] == ["host:8000", "host:8001"]
    codes: dict[str, int] = {}

    def end(name: str, reason: Reason) -> None:
        codes[name] = members[name].end(Exit(name, reason), outputs_done=True)

    end("agent-0", Reason.SUCCEEDED)
    for name in ("env-0", "env-1"):
        assert members[name].stopped.wait(HANGS)
        stop = members[name].stop
        assert stop is not None
        assert stop.reason is Reason.SUCCEEDED  # stopped because the leading role is done: no failure
        end(name, stop.reason)
    assert codes == {"agent-0": 0, "env-0": 0, "env-1": 0}


def test_a_rank_that_fails_ends_the_attempt_for_all(folder: Store) -> None:
    made = job(folder, ranks=2)
    members = [Member(folder, made, name, placement()) for name in made.members()]
    LIVING.update(member.placement.pid for member in members)
    for member in members:
        assert isinstance(member.start(), Started)
    threads = [threading.Thread(target=member.before_command) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert members[1].end(Exit("main-1", Reason.OUT_OF_MEMORY), outputs_done=False) == 78
    assert members[0].stopped.wait(HANGS)
    stop = members[0].stop
    assert stop is not None
    assert stop.reason is Reason.INFRASTRUCTURE
    assert members[0].end(Exit("main-0", stop.reason), outputs_done=False) == 78
    result = read_run(folder, run_id(made)).result
    assert result is not None
    assert (result.outcome, result.reason) == ("failed", Reason.OUT_OF_MEMORY)


def test_pids_of_this_host_prove_across_queue_entries(folder: Store) -> None:
    made = job(folder)
    one = Placement("process", "queue-a", host="host", boot="boot", pid=77, start=1)
    first = Member(folder, made, "main-0", one)
    LIVING.add(77)
    assert isinstance(first.start(), Started)
    other = Member(folder, made, "main-0", placement("queue-b"))
    left = other.start()
    assert isinstance(left, Leave)
    assert left.reason is Reason.DUPLICATE
    LIVING.discard(77)
    assert first._beating is not None
    first._beating.finish()
    third = Member(folder, made, "main-0", placement("queue-b"))
    started = third.start()
    assert isinstance(started, Started)
    assert started.attempt == 2
    assert third.end(Exit("main-0", Reason.PREEMPTED), outputs_done=False) == EXIT_PREEMPTED


def test_a_fence_names_the_cause_and_trouble_is_told_and_taken_back(folder: Store) -> None:
    store = AwayStore(folder)
    said: list[str] = []
    member = begun(store, job(folder, stale=600.0), trouble=said.append)
    store.away = True
    while not any(said):
        time.sleep(0.01)
    store.away = False
    while said[-1]:
        time.sleep(0.01)
    assert "the store is away" in said
    assert member.end(Exit("main-0", Reason.SUCCEEDED), outputs_done=True) == 0
    last = begun(store, job(folder, stale=0.5, name="other"))
    store.away = True
    assert last.stopped.wait(10)
    assert last.stop is not None
    assert last.stop.message.endswith(": the store is away")
    assert last.end(Exit("main-0", Reason.STORE_UNREACHABLE), outputs_done=False) == EXIT_AGAIN
