"""`backend: [docker, lambda]` with a real engine: the run leaves its container, which is gone soon after, and the mover
may be killed (kill -9) anywhere."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.local import daemon
from launcher.reasons import Reason
from launcher.runtime.process import procs
from tests.integration.moving.conftest import OfEngine
from tests.support.engine import another
from tests.support.waiting import until

pytestmark = [pytest.mark.s3, pytest.mark.timeout(300)]


def computing(there: OfEngine, name: str = "computes", **changes: Any) -> str:
    """A run whose container computes, and has stored checkpoints."""
    (run,) = there.submit(there.moving(name, **changes))
    until(lambda: len(there.checkpoints(run)) > 2, lambda: there.explain(run))
    assert len(there.containers(run)) == 1
    return run


def nothing_left(there: OfEngine, run: str) -> None:
    until(lambda: there.containers(run) == [] and run not in there.state.queued(), lambda: there.explain(run))
    assert there.reap(run) == []


def test_a_run_leaves_its_container_and_goes_on_from_its_checkpoint(there: OfEngine) -> None:
    run = computing(there)
    assert there.dying("move", run)[1:] == ["moved"]
    until(lambda: len(there.witness.of(3)) > 0, lambda: there.explain(run))
    assert "docker, then lambda" in there.launcher("status", run)
    there.went_on(run, 3)
    assert there.view(run).attempts[0].exits["main-0"].reason is Reason.LOST
    nothing_left(there, run)


@pytest.mark.nightly
def test_a_queue_without_room_gives_its_run_to_lambda(there: OfEngine) -> None:
    """Another run has all of this machine; no container of this one is ever made."""
    other = computing(there, resources={"cpus": 1, "memory": "256Mi"})
    (run,) = there.submit(there.moving("waits", limits={"start_deadline": "1s"}))
    until(lambda: (there.reap(run), there.living())[1], lambda: there.explain(run))
    there.witness.enough.add(run)
    assert there.result(run).attempt == 2
    assert there.moved(run) == [(1, "lambda")]
    assert len(there.machines.ledger("launched")) == 1
    assert there.containers(run) == []
    there.witness.enough.add(other)
    assert (there.result(other).outcome, there.moved(other)) == ("succeeded", [])


@pytest.mark.nightly
def test_cancel_ends_it_on_both(there: OfEngine) -> None:
    run = computing(there)
    there.dying("move", run)
    until(lambda: len(there.witness.of(3)) > 0, lambda: there.explain(run))
    there.launcher("cancel", run)
    assert there.living() == []
    assert there.result(run).outcome == "cancelled"
    nothing_left(there, run)


@pytest.mark.nightly
def test_an_engine_that_dies_and_comes_back_computes_nothing_beside_lambda(there: OfEngine, tmp_path: Path) -> None:
    """The container ends with its engine, and a person moves the run meanwhile. Back again, the engine gets no
    container of a run that is another's."""
    usual = there.engine
    with another(usual, tmp_path / "engine") as own:
        there.use(own)
        try:
            run = computing(there)
            own.stop()
            there.dying("move", run)
            own.start()
            there.went_on(run, 3)
            nothing_left(there, run)
        finally:
            there.close()
            there.use(usual)


@pytest.mark.nightly
def test_a_container_whose_supervisor_is_dead_computes_nothing_beside_lambda(there: OfEngine) -> None:
    """Nobody ends the container: what runs in it reads the store."""
    run = computing(there)
    found = daemon.living_supervisor(there.state)
    assert found is not None
    procs.send(procs.Process(found.pid, found.start), signal.SIGKILL)
    there.dying("move", run)
    there.went_on(run, 3)
    there.reap(run)
    nothing_left(there, run)


@pytest.mark.nightly
@pytest.mark.parametrize("at", range(5, 255, 25))  # of about 250 moments
def test_wherever_a_mover_is_killed(there: OfEngine, at: int) -> None:
    run = computing(there)
    there.dying("move", run, at)
    there.dying("move", run) if there.view(run).turn == 0 else there.reap(run)
    until(lambda: (there.reap(run), there.living())[1], lambda: there.explain(run))
    there.went_on(run, 3)
    nothing_left(there, run)
