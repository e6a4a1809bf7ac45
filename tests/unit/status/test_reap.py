"""`launcher reap`: ends without a record, runs that never start, objects that outlived their run. Twice is once."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
import pytest

from launcher.backends.base import Backend, BackendObservation, Handle
from launcher.errors import Unreachable
from launcher.protocol.reaping import HOPELESS
from launcher.protocol.records import Placement, Result
from launcher.reasons import Reason
from launcher.spec.model import Limits
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs.leftovers import LEAVING, Reaped
from launcher.verbs.reap import reap
from tests.support.fakerun import FakeAttempt, fake_job, write_run


class Cluster:
    """A backend with objects of one or several runs each, which only the reaper ends."""

    def __init__(self) -> None:
        self.objects: dict[str, list[str]] = {}
        self.over: dict[str, tuple[str, str]] = {}  # run -> why its object ended
        self.said: dict[str, tuple[str, str]] = {}  # run -> why it does not start
        self.asked: list[str] = []
        self.ended: list[str] = []
        self.spaces: dict[str, str] = {}  # run -> namespace
        self.made: dict[str, float] = {}  # run -> when its object was made
        self.applied = False  # by somebody else than submit
        self.away = False
        self.dies = False  # whoever deletes an object dies then

    def add(self, *runs: str, name: str = "") -> None:
        self.objects[name or runs[0]] = list(runs)

    def mine(self) -> Iterator[BackendObservation]:
        if self.away:
            raise Unreachable("no answer")
        for name, runs in self.objects.items():
            for run in runs:
                reason, evidence = self.over.get(run) or self.said.get(run, ("", ""))
                handle = Handle(run, "x", name, "", {"namespace": self.spaces.get(run, "")})
                made = self.made.get(run, 0.0)
                yield BackendObservation(
                    handle, run not in self.over, "", reason, evidence, made=made, applied=self.applied
                )

    def look_up(self, run: str) -> BackendObservation | None:
        return next((seen for seen in self.mine() if seen.handle.run == run), None)

    place = "here"

    def dead(self, placement: object, seen: BackendObservation | None) -> bool:
        return False

    def here(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        return placement is not None or seen is not None

    def cancel(self, handles: Collection[Handle]) -> None:
        """As a cluster does it: an object goes when all that it carries are to go."""
        wanted = {handle.run for handle in handles}
        self.asked += sorted(wanted)
        for name in dict.fromkeys(handle.name for handle in handles):
            if wanted.issuperset(self.objects.get(name, ())):
                self.ended.append(name)
                self.objects.pop(name, None)
        if self.dies:
            raise KeyboardInterrupt


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def go(store: Store, cluster: Cluster, tmp_path: Path, plan: bool = False) -> list[Reaped]:
    made: Backend = cluster  # type: ignore[assignment]
    with Cache(tmp_path / "cache.sqlite") as cache:
        return reap(store, lambda job: made, {"kubernetes": made}, cache=cache, plan=plan)


def result(store: Store, run: str) -> Result | None:
    found = store.read(RunKeys(run).result)
    return msgspec.json.decode(found[0], type=Result) if found else None


def older(tmp_path: Path, key: str, seconds: float) -> None:
    """Moves an object of the file store into the past."""
    then = time.time() - seconds
    os.utime(tmp_path / "store" / key, (then, then))


def test_a_stage_whose_upstream_failed_is_ended(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    run = write_run(file_store, fake_job("after"), [], outcome=None)
    cluster.add(run)
    cluster.over[run] = ("upstream_failed", "stage before failed")
    assert [row.did for row in go(file_store, cluster, tmp_path, plan=True)] == ["ended"]
    assert result(file_store, run) is None
    assert go(file_store, cluster, tmp_path) == [Reaped(run, "ended", "failed: upstream_failed")]
    there = result(file_store, run)
    assert there is not None
    assert (there.reason, there.message) == (Reason.UPSTREAM_FAILED, "stage before failed")
    assert go(file_store, cluster, tmp_path) == []


def test_what_waits_too_long_is_taken_away_and_ended(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    job = fake_job("big", limits=Limits(start_deadline=60.0))
    run = write_run(file_store, job, [], outcome=None)
    cluster.add(run)
    assert go(file_store, cluster, tmp_path) == []
    older(tmp_path, RunKeys(run).job, 61)
    assert go(file_store, cluster, tmp_path) == [Reaped(run, "ended", "failed: unschedulable")]
    assert cluster.ended == [run]
    there = result(file_store, run)
    assert there is not None
    assert there.message == "not started within 60 s"


def test_a_stage_waits_for_the_one_before_it_as_long_as_that_takes(
    file_store: Store, cluster: Cluster, tmp_path: Path
) -> None:
    first = write_run(file_store, fake_job("first"), [FakeAttempt(ended=None)], outcome=None)
    second = write_run(file_store, fake_job("second", limits=Limits(start_deadline=60.0)), [], outcome=None)
    older(tmp_path, RunKeys(second).job, 3600)
    cluster.add(first, second, name="pipeline")
    assert go(file_store, cluster, tmp_path) == go(file_store, cluster, tmp_path, plan=True) == []
    assert cluster.asked == []


def test_what_can_not_start_keeps_its_place_for_half_an_hour(
    file_store: Store, cluster: Cluster, tmp_path: Path
) -> None:
    run = write_run(file_store, fake_job("typo"), [], outcome=None)
    waits = write_run(file_store, fake_job("queued"), [], outcome=None)
    cluster.add(run)
    cluster.add(waits)
    cluster.said[run] = ("image_pull", "no such image")
    cluster.said[waits] = ("unschedulable", "no room yet")
    older(tmp_path, RunKeys(run).job, HOPELESS - 10)
    older(tmp_path, RunKeys(waits).job, 100 * HOPELESS)
    assert go(file_store, cluster, tmp_path) == []
    older(tmp_path, RunKeys(run).job, HOPELESS + 1)
    assert go(file_store, cluster, tmp_path) == [Reaped(run, "ended", "failed: image_pull")]
    assert cluster.ended == [run]
    assert result(file_store, waits) is None  # who waits for room, waits


def test_the_same_when_the_reaper_died_in_between(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    run = write_run(file_store, fake_job("big", limits=Limits(start_deadline=60.0)), [], outcome=None)
    older(tmp_path, RunKeys(run).job, 61)
    cluster.add(run)
    cluster.dies = True
    with pytest.raises(KeyboardInterrupt):
        go(file_store, cluster, tmp_path)
    assert cluster.ended == [run]  # its object is gone already, its result was never written
    assert result(file_store, run) is None
    cluster.dies, cluster.away = False, True  # whether the object has gone is not known now
    assert {row.did for row in go(file_store, cluster, tmp_path)} == {"unknown", "unreachable"}
    assert result(file_store, run) is None
    cluster.away = False
    assert [row.did for row in go(file_store, cluster, tmp_path, plan=True)] == ["ended"]
    assert go(file_store, cluster, tmp_path) == [Reaped(run, "ended", "failed: unschedulable")]
    there = result(file_store, run)
    assert there is not None
    assert there.message == "not started within 60 s"


def test_what_never_was_here_is_not_ended_here(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    """It waits in another cluster on this store, or its submit was interrupted on another machine."""
    run = write_run(file_store, fake_job("big", limits=Limits(start_deadline=60.0)), [], outcome=None)
    assert go(file_store, cluster, tmp_path) == []
    older(tmp_path, RunKeys(run).job, 86400)
    for plan in (True, False):
        (row,) = go(file_store, cluster, tmp_path, plan=plan)
        assert (row.run, row.did) == (run, "unknown")
        assert "another cluster" in row.detail
    assert result(file_store, run) is None


def test_a_run_that_has_begun_does_not_wait_any_more(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    job = fake_job("big", limits=Limits(start_deadline=60.0))
    run = write_run(file_store, job, [FakeAttempt(ended=None)], outcome=None)
    cluster.add(run)
    older(tmp_path, RunKeys(run).job, 61)
    assert go(file_store, cluster, tmp_path) == []
    assert cluster.ended == []


def test_the_wait_begins_when_the_backend_gets_it(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    """Written down by a submit that was cut off, and submitted again a day later."""
    run = write_run(file_store, fake_job("again", limits=Limits(start_deadline=60.0)), [], outcome=None)
    older(tmp_path, RunKeys(run).job, 86400)
    cluster.add(run)
    cluster.made[run] = time.time() - 30
    assert go(file_store, cluster, tmp_path) == []
    cluster.made[run] -= 31
    assert go(file_store, cluster, tmp_path) == [Reaped(run, "ended", "failed: unschedulable")]


class OneOfTwo(Cluster):
    """One of two clusters that share a store."""

    ran_here = False

    def here(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        return self.ran_here


@pytest.mark.parametrize("has_one", [False, True])
def test_a_run_between_two_attempts_in_another_cluster_lives(file_store: Store, tmp_path: Path, has_one: bool) -> None:
    """It was preempted there and waits for its turn. Here is nothing of it, or a pod that ended as a duplicate."""
    cluster = OneOfTwo()
    job = fake_job("away", backend="kubernetes")
    run = write_run(file_store, job, [FakeAttempt(reason=Reason.PREEMPTED)], outcome=None)
    if has_one:
        cluster.add(run)
        cluster.over[run] = ("config_error", "exit code 78")
    for plan in (True, False):
        (row,) = go(file_store, cluster, tmp_path, plan)
        assert (row.run, row.did) == (run, "unknown")
        assert "another cluster" in row.detail
    assert result(file_store, run) is None
    cluster.ran_here = True
    told = go(file_store, cluster, tmp_path, plan=True)
    assert [row.did for row in told] == ["ended"]
    assert go(file_store, cluster, tmp_path) == told


def test_what_was_never_submitted_is_said(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    run = write_run(file_store, fake_job("lost", backend="kubernetes"), [], outcome=None)
    (row,) = go(file_store, cluster, tmp_path)
    assert (row.run, row.did) == (run, "unsubmitted")
    assert result(file_store, run) is None


def test_an_object_that_outlived_its_run_is_ended(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    run = write_run(file_store, fake_job("done"))
    cluster.add(run)
    assert go(file_store, cluster, tmp_path) == []  # its last processes may still be leaving
    older(tmp_path, RunKeys(run).result, LEAVING + 1)
    assert [row.did for row in go(file_store, cluster, tmp_path, plan=True)] == ["stopped"]
    assert cluster.ended == []
    assert [row.did for row in go(file_store, cluster, tmp_path)] == ["stopped"]
    assert cluster.ended == [run]


def test_a_cancelled_run_is_ended_at_once(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    run = write_run(file_store, fake_job("no"), [FakeAttempt(ended=None)], outcome=None, cancelled=True)
    cluster.add(run)
    assert Reaped(run, "stopped", f"{run} still ran; its run was cancelled") in go(file_store, cluster, tmp_path)


def test_an_object_of_several_runs_goes_when_the_last_has_ended(
    file_store: Store, cluster: Cluster, tmp_path: Path
) -> None:
    done = write_run(file_store, fake_job("first"))
    going = write_run(file_store, fake_job("second"), [FakeAttempt(ended=None)], outcome=None)
    cluster.add(done, going, name="pipeline")
    older(tmp_path, RunKeys(done).result, LEAVING + 1)
    assert go(file_store, cluster, tmp_path) == []
    assert cluster.ended == []


def test_an_object_whose_runs_were_all_cancelled_goes_whole(
    file_store: Store, cluster: Cluster, tmp_path: Path
) -> None:
    runs = [write_run(file_store, fake_job(name), [], outcome=None, cancelled=True) for name in ("one", "two")]
    cluster.add(*runs, name="pipeline")
    assert sorted(row.run for row in go(file_store, cluster, tmp_path) if row.did == "stopped") == sorted(runs)
    assert cluster.ended == ["pipeline"]


def test_objects_of_one_name_in_two_namespaces_are_two(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    """Of the one all runs have ended; the other, which happens to have its name, is another team's."""
    done = write_run(file_store, fake_job("done"))
    older(tmp_path, RunKeys(done).result, LEAVING + 1)
    cluster.add(done, "stranger-0123456789ab", name="same")
    cluster.spaces = {done: "a", "stranger-0123456789ab": "b"}
    assert ("stopped", done) in {(row.did, row.run) for row in go(file_store, cluster, tmp_path)}


def test_another_stores_objects_are_left_alone(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    cluster.add("stranger-0123456789ab")
    (row,) = go(file_store, cluster, tmp_path)
    assert (row.run, row.did) == ("stranger-0123456789ab", "unknown")
    assert cluster.ended == []


def test_a_backend_that_does_not_answer_ends_nothing(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    run = write_run(file_store, fake_job("big", limits=Limits(start_deadline=60.0)), [], outcome=None)
    cluster.away = True
    assert go(file_store, cluster, tmp_path) == [Reaped("kubernetes", "unreachable", "no answer")]
    older(tmp_path, RunKeys(run).job, 61)
    between = write_run(file_store, fake_job("two"), [FakeAttempt(reason=Reason.PREEMPTED)], outcome=None)
    found = go(file_store, cluster, tmp_path)
    assert {(row.run, row.did) for row in found} == {
        ("kubernetes", "unreachable"),
        (run, "unknown"),
        (between, "unknown"),
    }
    assert all("no answer" in row.detail for row in found)
    assert result(file_store, run) is result(file_store, between) is None
