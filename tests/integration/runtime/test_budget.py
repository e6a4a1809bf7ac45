"""A run whose budget is spent: a real runtime, whose command saves a checkpoint when it is asked to stop."""

from __future__ import annotations

from pathlib import Path

import msgspec

from launcher.reasons import Reason
from launcher.spec.model import BUDGET_MARGIN, Budget, Limits, Output
from tests.integration.runtime.rig import Rig, python
from tests.integration.runtime.test_checkpoints import TRAINER, steps

GRACE = 20.0
KEPT = 2 * GRACE + BUDGET_MARGIN  # seconds


def paying(seconds: float) -> Limits:
    """Limits whose budget pays for so long: 3,600 USD an hour are a USD a second."""
    return Limits(grace=GRACE, retries=5, budget=Budget(KEPT + seconds, "USD", 3600.0))


def test_a_spent_budget_stops_the_run_with_its_checkpoint(tmp_path: Path) -> None:
    rig = Rig.of(
        tmp_path,
        python(TRAINER + "step = 7\nwhile True: time.sleep(0.05)"),
        outputs={"checkpoints": Output(kind="checkpoints", match="checkpoint-*")},
        limits=paying(15.0),
    )
    assert rig.go() == 78  # no backend starts it again
    assert rig.exit().reason is Reason.BUDGET
    assert steps(rig) == [(7, 1)]  # saved by the command's own handler, and stored whole
    result = rig.result()
    assert result is not None
    assert (result.outcome, result.reason) == ("failed", Reason.BUDGET)
    assert "the budget is spent: it pays for 15 s over all attempts" in result.message
    assert 15.0 <= result.held < 15.0 + KEPT  # it ended before it cost more
    assert rig.go() == 78  # a pod that is started again all the same computes nothing
    assert len(rig.view().attempts) == 1


def test_what_earlier_attempts_cost_is_counted(tmp_path: Path) -> None:
    """The first attempt, preempted, says that it held its machine for an hour."""
    rig = Rig.of(tmp_path, ("sh", "-c", "kill -TERM $PPID; sleep 30"), limits=paying(3000.0))
    assert rig.go() == 143
    key = rig.keys.attempt(1).exit("main-0")
    ended = msgspec.json.decode(rig.store.get(key), type=type(rig.exit()))
    Path(rig.job.store.removeprefix("file://"), key).write_bytes(
        msgspec.json.encode(msgspec.structs.replace(ended, held=3600.0))
    )
    assert rig.go() == 78
    result = rig.result()
    assert result is not None
    assert (result.reason, len(rig.view().attempts)) == (Reason.BUDGET, 1)
