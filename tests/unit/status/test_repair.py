"""`status` puts a missing result, but only when nothing on the backend may still run."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec
import pytest

from launcher.backends.base import Backend, BackendObservation, Handle
from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.entry import where
from launcher.backends.local.supervisor import store_requests
from launcher.errors import Unreachable
from launcher.protocol.records import Claim, Placement
from launcher.reasons import Reason
from launcher.spec.model import Limits, Output
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs.cancel import cancel_all
from launcher.verbs.reap import reap
from launcher.verbs.status import read_line, read_lines
from tests.support.fakerun import FakeAttempt, fake_job, write_run


class OneRun:
    """A backend that says the same of every run."""

    def __init__(self, active: bool | Exception | None) -> None:
        self.active = active

    def look_up(self, run: str) -> BackendObservation | None:
        if isinstance(self.active, Exception):
            raise self.active
        return None if self.active is None else BackendObservation(Handle(run, "x", run, ""), self.active)

    place = "here"

    def dead(self, placement: object, seen: BackendObservation | None) -> bool:
        return False

    def here(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        return True


def backend_of(active: bool | Exception | None) -> object:
    made: Backend = OneRun(active)  # type: ignore[assignment]
    return lambda name: made


def ended_without_result(store: Store, reason: Reason, backend: str = "kubernetes") -> str:
    outputs = {"results": {"a": b"1"}} if reason is Reason.SUCCEEDED else {}
    job = fake_job("job", backend=backend, outputs={"results": Output()})
    return write_run(store, job, [FakeAttempt(reason=reason, outputs=outputs)], outcome=None)


def test_finished_work_gets_its_record(file_store: Store) -> None:
    run = ended_without_result(file_store, Reason.SUCCEEDED)
    _, line = read_line(file_store, run, backend_of(False))  # type: ignore[arg-type]
    assert line.state == "succeeded"
    assert file_store.head(RunKeys(run).result) is not None
    assert any(meta.key.endswith(f"/{run}.json") for meta in file_store.scan("works/"))


def test_a_run_that_nobody_will_try_again_is_ended(file_store: Store) -> None:
    run = ended_without_result(file_store, Reason.PREEMPTED)
    _, line = read_line(file_store, run, backend_of(False))  # type: ignore[arg-type]
    assert line.state == "failed"


@pytest.mark.parametrize("active", [True, Unreachable("away")])
def test_what_may_be_tried_again_is_left_alone(file_store: Store, active: bool | Exception) -> None:
    run = ended_without_result(file_store, Reason.PREEMPTED)
    _, line = read_line(file_store, run, backend_of(active))  # type: ignore[arg-type]
    assert line.state == "starting"
    assert file_store.head(RunKeys(run).result) is None


@pytest.mark.parametrize("backend", ["local", "docker"])
def test_only_its_own_queue_can_say_that_a_run_is_gone(file_store: Store, tmp_path: Path, backend: str) -> None:
    """Not the host's name: two projects and two users of one host have a queue each."""
    own, other = (LocalBackend({"state": str(tmp_path / name)}) for name in ("own", "other"))
    for each in (own, other):
        each.state.make()
    run = ended_without_result(file_store, Reason.PREEMPTED, backend=backend)
    kind, host = ("process", socket.gethostname()) if backend == "local" else ("container", "172.17.0.2")
    claim = Claim(Placement(kind, where(own.state.id, run, "box"), host=host), nonce="n", time=1.0)
    file_store.put(RunKeys(run).attempt(1).claim("main-0"), msgspec.json.encode(claim))
    missing = LocalBackend({"state": str(tmp_path / "never made")})
    for stranger in (other, missing):
        _, line = read_line(file_store, run, lambda job: stranger)  # noqa: B023 - called at once
        assert (line.state, host in line.detail) == ("starting", True)
        assert "another queue" in line.detail
    assert not missing.state.path.exists()
    assert store_requests.close(file_store, run, other.state.id) is None
    assert store_requests.end_unstarted(file_store, run, other.state.id, Reason.CAPACITY, "no room here") is None
    assert file_store.head(RunKeys(run).result) is None
    _, line = read_line(file_store, run, lambda job: own)
    assert (line.state, line.reason) == ("failed", "lost")


def test_before_its_first_attempt_a_run_is_only_ended_by_a_queue_that_has_it(file_store: Store, tmp_path: Path) -> None:
    """job.json is there and no claim yet: the run may wait in another folder's queue."""
    other = LocalBackend({"state": str(tmp_path / "other")})
    other.state.make()
    run = write_run(file_store, fake_job("job", limits=Limits(start_deadline=1.0)), [], outcome=None)
    os.utime(tmp_path / "store" / RunKeys(run).job, (1.0, 1.0))
    _, line = read_line(file_store, run, lambda job: other)
    assert line.state == "queued"
    with Cache(tmp_path / "c.sqlite") as cache:
        assert [row.did for row in reap(file_store, lambda job: other, {"local": other}, cache=cache)] == ["unknown"]
    assert file_store.head(RunKeys(run).result) is None
    ended = store_requests.end_unstarted(
        file_store, run, other.state.id, Reason.CAPACITY, "no room"
    )  # it is in its queue
    assert ended is not None
    assert ended.reason is Reason.CAPACITY


def test_a_cancelled_run_of_another_queue_ends_by_its_records(file_store: Store, tmp_path: Path) -> None:
    """Nothing of it lives, and no attempt starts its command any more, wherever it is."""
    other = LocalBackend({"state": str(tmp_path / "other")})
    run = ended_without_result(file_store, Reason.PREEMPTED, backend="local")
    alive = write_run(file_store, fake_job("alive"), [FakeAttempt(ended=None)], outcome=None)
    assert [one.state for one in cancel_all(file_store, [run, alive], other)] == ["cancelled", "stopping"]


def test_a_run_cancelled_before_it_began_is_ended(file_store: Store) -> None:
    run = write_run(file_store, fake_job("job"), [], outcome=None, cancelled=True)
    _, line = read_line(file_store, run, backend_of(None))  # type: ignore[arg-type]
    assert line.state == "cancelled"


def test_a_run_that_was_never_given_to_the_backend_waits_for_submit(file_store: Store) -> None:
    run = write_run(file_store, fake_job("job"), [], outcome=None)
    _, line = read_line(file_store, run, backend_of(None))  # type: ignore[arg-type]
    assert line.state == "queued"


def test_a_missing_works_record_is_put(file_store: Store) -> None:
    run = write_run(file_store, fake_job("job"))
    assert list(file_store.scan("works/")) == []
    read_line(file_store, run, backend_of(None))  # type: ignore[arg-type]
    assert [meta.key.rpartition("/")[2] for meta in file_store.scan("works/")] == [f"{run}.json"]


def test_a_live_run_is_not_asked_about(file_store: Store, tmp_path: Path) -> None:
    run = write_run(file_store, fake_job("job"), [FakeAttempt(ended=None)], outcome=None)
    asked: list[str] = []

    def backend_of(name: str) -> None:
        asked.append(name)

    with Cache(tmp_path / "c.sqlite") as cache:
        (line,), _ = read_lines(file_store, [run], cache=cache, backend_of=backend_of)
    assert line.state == "starting"
    assert asked == []
