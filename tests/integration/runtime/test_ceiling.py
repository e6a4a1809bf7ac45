"""Runs of a group that may cost so much together: real runtimes side by side, which read each other's heartbeats."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import msgspec

from launcher.protocol.ceiling import write_ceilings
from launcher.protocol.records import Beat
from launcher.reasons import Reason
from launcher.spec.hashing import encode_job
from launcher.spec.model import BUDGET_MARGIN, Limits, Output
from launcher.store.find import GroupRecord
from launcher.store.layout import group
from tests.integration.runtime.rig import Rig, python, until
from tests.integration.runtime.test_checkpoints import TRAINER, steps

GRACE = 20.0
KEPT = 2 * GRACE + BUDGET_MARGIN  # USD: each run costs a USD a second
HOURLY = Decimal(3600)
GROUP = "g-0123456789ab"
SAVES = python(TRAINER + "step = 7\nwhile True: time.sleep(0.05)")


def rigs(path: Path, *names: str, **more: object) -> list[Rig]:
    """Runs of one group, each submitted."""
    found = []
    for name in names:
        store = (path / "store").as_uri()
        (path / name).mkdir()
        outputs = {"checkpoints": Output(kind="checkpoints", match="checkpoint-*")}
        limits = Limits(grace=GRACE, retries=5)
        one = Rig.of(path / name, SAVES, store=store, outputs=outputs, limits=limits, config={"name": name})
        one.store.create(one.keys.job, encode_job(one.job))
        found.append(one)
    first = found[0].store
    runs = tuple(one.run for one in found)
    first.create(group(GROUP), msgspec.json.encode(GroupRecord(GROUP, runs)))
    return found


def allow(found: list[Rig], amount: float) -> None:
    runs = [one.run for one in found]
    write_ceilings(found[0].store, GROUP, Decimal(str(amount)), "USD", dict.fromkeys(runs, HOURLY), runs)


def test_all_runs_stop_with_their_checkpoints_before_they_cost_more(tmp_path: Path) -> None:
    found = rigs(tmp_path, "a", "b")
    allow(found, 2 * KEPT + 16)
    processes = [one.start() for one in found]
    # no backend starts them again; the one that stops last may use what was kept for the other one's end
    assert [process.wait(KEPT + 60) for process in processes] == [78, 78]
    for one in found:
        assert one.exit().reason is Reason.BUDGET
        assert steps(one) == [(7, 1)]
        result = one.result()
        assert result is not None
        assert (result.outcome, result.reason) == ("failed", Reason.BUDGET)
        assert f"may cost {2 * KEPT + 16} USD together" in result.message
    assert sum(result.held for one in found if (result := one.result()) is not None) <= 2 * KEPT + 16


def test_a_run_that_comes_too_late_computes_nothing(tmp_path: Path) -> None:
    """What ended runs have cost counts, and so does one that was killed, up to its last heartbeat."""
    early, killed, late = rigs(tmp_path, "early", "killed", "late")
    allow([early, killed, late], KEPT + 1000)
    process = killed.start()
    beat = killed.keys.attempt(1).beat("main-0")
    until(lambda: killed.store.head(beat), lambda: (tmp_path / "killed/main-0.out").read_text())
    process.kill()
    process.wait()  # its leash ends the command
    key = Path(killed.job.store.removeprefix("file://"), beat)
    told = msgspec.json.decode(key.read_bytes(), type=Beat)
    key.write_bytes(msgspec.json.encode(msgspec.structs.replace(told, held=1000.0)))
    assert late.go() == 78
    assert late.exit().reason is Reason.BUDGET
    assert steps(late) == []
