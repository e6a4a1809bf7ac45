"""A run that GitOps applied and whose object is gone: what applied it makes it again, so its end is not known yet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec
import pytest

from launcher.backends.abilities import CarriedRun
from launcher.errors import Unreachable
from launcher.protocol.applied import note_applied, was_applied
from launcher.protocol.decide import GONE_FOR_GOOD
from launcher.protocol.read import read_run
from launcher.protocol.records import Placement, Result
from launcher.reasons import Reason
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.verbs.cancel import cancel
from launcher.verbs.leftovers import Reaped
from launcher.verbs.status import Line, read_line
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.unit.status.test_reap import Cluster, go


class Own(Cluster):
    """The run's own cluster."""

    def here(self, placement: Placement | None, seen: object) -> bool:
        return placement is not None or seen is not None


class Kept(Own):
    """One that Flux applies to, which left no mark on what was there: its inventory alone names the run."""

    kept_runs: tuple[str, ...] = ()
    told: tuple[str, ...] = ()  # the pods of the run

    def carried_with(self, run: str) -> list[CarriedRun]:
        return []

    def carried(self, wanted: Callable[[str], bool], store: str) -> Iterator[CarriedRun]:
        return iter(())

    def kept(self, run: str, placements: Collection[Placement]) -> bool:
        if self.away:
            raise Unreachable("no answer")
        self.told = tuple(placement.container for placement in placements)
        return run in self.kept_runs


def preempted(store: Store, *, applied: bool) -> str:
    """A run whose pod was ended with its object."""
    run = write_run(store, fake_job("git", backend="kubernetes"), [FakeAttempt(reason=Reason.PREEMPTED)], outcome=None)
    if applied:
        note_applied(store, run)
    return run


def status(store: Store, run: str, cluster: Cluster) -> Line:
    return read_line(store, run, lambda job: cluster)[1]  # type: ignore[arg-type,return-value]


def ended(store: Store, run: str) -> Result | None:
    stored = store.read(RunKeys(run).result)
    return msgspec.json.decode(stored[0], type=Result) if stored is not None else None


def quiet(tmp_path: Path, seconds: float) -> None:
    """Moves all signs of life into the past."""
    for path in (tmp_path / "store" / "runs").rglob("attempts/*/*/*.json"):
        os.utime(path, (time.time() - seconds,) * 2)


def test_status_does_not_end_it(file_store: Store, tmp_path: Path) -> None:
    """Flux makes an object again within its interval, 10 minutes in k8s/gitops."""
    run = preempted(file_store, applied=True)
    for seconds in (60, 601, GONE_FOR_GOOD - 60):
        quiet(tmp_path, seconds)
        line = status(file_store, run, Own())
        assert not line.final
        assert "what applied it (Argo CD, Flux) may make it again" in line.detail
        assert go(file_store, Own(), tmp_path) == [Reaped(run, "unknown", line.detail)]
    again = Own()
    again.add(run)
    assert not status(file_store, run, again).final
    assert ended(file_store, run) is None


@pytest.mark.parametrize("verb", ["status", "reap"])
def test_who_sees_that_a_submitted_run_is_applied_now_keeps_it_open(
    verb: str, file_store: Store, tmp_path: Path
) -> None:
    """Its file was committed after the submit: nothing but its object tells so, and only as long as it is there."""
    run = preempted(file_store, applied=False)
    there = Own()
    there.add(run)
    there.applied = True
    go(file_store, there, tmp_path, plan=True)
    assert not was_applied(read_run(file_store, run))
    if verb == "status":
        status(file_store, run, there)
    else:
        go(file_store, there, tmp_path)
    assert was_applied(read_run(file_store, run))
    assert not status(file_store, run, Own()).final
    assert ended(file_store, run) is None


@pytest.mark.parametrize("verb", ["status", "reap"])
def test_a_tools_own_list_keeps_open_what_bears_no_mark(verb: str, file_store: Store, tmp_path: Path) -> None:
    """`ssa: IfNotPresent`: Flux sends nothing to a Job that was submitted before its file was committed."""
    run = preempted(file_store, applied=False)
    gone = Kept()
    gone.kept_runs = (run,)
    if verb == "status":
        assert "may make it again" in status(file_store, run, gone).detail
    else:
        (row,) = go(file_store, gone, tmp_path)
        assert row.did == "unknown"
    assert was_applied(read_run(file_store, run))  # also for those who may not read the list
    assert not status(file_store, run, Own()).final
    assert ended(file_store, run) is None
    assert gone.told == ("",)


def test_the_reaper_notes_it_while_the_object_is_there(file_store: Store, tmp_path: Path) -> None:
    """It may read the list; a person's login may not."""
    run = preempted(file_store, applied=False)
    there = Kept()
    there.add(run)
    go(file_store, there, tmp_path)
    assert not was_applied(read_run(file_store, run))
    there.kept_runs = (run,)
    go(file_store, there, tmp_path, plan=True)
    assert not was_applied(read_run(file_store, run))
    go(file_store, there, tmp_path)
    assert was_applied(read_run(file_store, run))


def test_a_list_that_cannot_be_read_ends_nothing(file_store: Store) -> None:
    run = preempted(file_store, applied=False)

    class Silent(Kept):
        def kept(self, run: str, placements: Collection[Placement]) -> bool:
            raise Unreachable("no answer")

    line = status(file_store, run, Silent())
    assert (line.final, line.detail) == (False, "no answer")


def test_without_git_it_is_lost_at_once(file_store: Store) -> None:
    run = preempted(file_store, applied=False)
    assert status(file_store, run, Own()).state == "failed"
    result = ended(file_store, run)
    assert result is not None
    assert (result.outcome, result.reason) == ("failed", Reason.LOST)


@pytest.mark.parametrize("verb", ["status", "reap"])
def test_an_object_that_nothing_makes_again_was_removed_from_git(file_store: Store, tmp_path: Path, verb: str) -> None:
    run = preempted(file_store, applied=True)
    quiet(tmp_path, GONE_FOR_GOOD + 60)
    if verb == "status":
        assert status(file_store, run, Own()).state == "cancelled"
    else:
        assert go(file_store, Own(), tmp_path, plan=True) == [Reaped(run, "ended", "cancelled: cancelled")]
        assert go(file_store, Own(), tmp_path) == [Reaped(run, "ended", "cancelled: cancelled")]
    result = ended(file_store, run)
    assert result is not None
    assert (result.outcome, result.reason) == ("cancelled", Reason.CANCELLED)
    assert "its file was removed from Git" in result.message


def test_cancel_ends_it_at_once(file_store: Store) -> None:
    run = preempted(file_store, applied=True)
    assert cancel(file_store, run, Own(), reason="enough").state == "cancelled"  # type: ignore[arg-type]
    result = ended(file_store, run)
    assert result is not None
    assert "removed" not in result.message


def test_another_cluster_does_not_end_it(file_store: Store, tmp_path: Path) -> None:
    class Other(Cluster):
        def here(self, placement: Placement | None, seen: object) -> bool:
            return False

    run = preempted(file_store, applied=True)
    quiet(tmp_path, 100 * GONE_FOR_GOOD)
    assert not status(file_store, run, Other()).final
    assert ended(file_store, run) is None


def test_one_that_never_started_waits_for_a_person(file_store: Store, tmp_path: Path) -> None:
    """Another cluster may have it in its queue."""
    run = write_run(file_store, fake_job("git", backend="kubernetes"), [], outcome=None)
    note_applied(file_store, run)
    (row,) = go(file_store, Own(), tmp_path)
    assert (row.did, "`launcher cancel` ends it" in row.detail) == ("unsubmitted", True)
    assert status(file_store, run, Own()).state == "queued"
    assert cancel(file_store, run, Own()).state == "cancelled"  # type: ignore[arg-type]
