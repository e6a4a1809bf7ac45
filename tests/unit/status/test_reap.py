"""`launcher reap`: ends without a record, runs that never start, objects that outlived their run. Twice is once."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
import pytest

from launcher.backends.base import Backend, Handle, Observation
from launcher.cache import Cache
from launcher.errors import Unreachable
from launcher.protocol.records import Result
from launcher.reap import HOPELESS, LEAVING, Reaped, reap
from launcher.reasons import Reason
from launcher.spec.model import Limits
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from tests.support.fakerun import FakeAttempt, fake_job, write_run


class Cluster:
    """A backend with objects of one or several runs each, which only the reaper ends."""

    def __init__(self) -> None:
        self.objects: dict[str, list[str]] = {}
        self.over: dict[str, tuple[str, str]] = {}  # run -> why its object ended
        self.said: dict[str, tuple[str, str]] = {}  # run -> why it does not start
        self.ended: list[str] = []
        self.away = False

    def add(self, *runs: str, name: str = "") -> None:
        self.objects[name or runs[0]] = list(runs)

    def mine(self) -> Iterator[Observation]:
        if self.away:
            raise Unreachable("no answer")
        for name, runs in self.objects.items():
            for run in runs:
                reason, evidence = self.over.get(run) or self.said.get(run, ("", ""))
                yield Observation(Handle(run, "x", name, ""), run not in self.over, "", reason, evidence)

    def look_up(self, run: str) -> Observation | None:
        return next((seen for seen in self.mine() if seen.handle.run == run), None)

    def cancel(self, handles: Collection[Handle]) -> None:
        for handle in handles:
            self.ended.append(handle.name)
            self.objects.pop(handle.name, None)


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
    older(tmp_path, RunKeys(run).job, 61)  # its object is gone already, its result was never written
    assert go(file_store, cluster, tmp_path) == [Reaped(run, "ended", "failed: unschedulable")]


def test_a_run_that_has_begun_does_not_wait_any_more(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    job = fake_job("big", limits=Limits(start_deadline=60.0))
    run = write_run(file_store, job, [FakeAttempt(ended=None)], outcome=None)
    cluster.add(run)
    older(tmp_path, RunKeys(run).job, 61)
    assert go(file_store, cluster, tmp_path) == []
    assert cluster.ended == []


def test_what_was_never_submitted_is_said(file_store: Store, cluster: Cluster, tmp_path: Path) -> None:
    run = write_run(file_store, fake_job("lost"), [], outcome=None)
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
    go(file_store, cluster, tmp_path)
    assert result(file_store, run) is None
