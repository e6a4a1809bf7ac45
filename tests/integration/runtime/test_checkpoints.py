"""Checkpoints: what is kept of them, and what the next attempt goes on from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from launcher.errors import NotFound
from launcher.protocol.records import Result, Resumed
from launcher.runtime.uploads import stored_checkpoints
from launcher.spec.model import Image, Limits, Output
from launcher.store.manifest import read_manifest
from tests.integration.runtime.rig import Rig, python, terminate, until

TRAINER = """
import json, os, shutil, signal, sys, time
from pathlib import Path
out = Path(os.environ["SLIPWAY_OUTPUTS"]) / "checkpoints"
resume = os.environ["SLIPWAY_RESUME"]
step = json.loads((Path(resume) / "state").read_text())["step"] if resume else 0
print("from", step, Path(resume).name, flush=True)
def save(step, rotate=2):
    folder = out / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(bytes([step % 251]) * 1000)
    (folder / "state").write_text(json.dumps({"step": step}))
    for old in sorted(out.iterdir(), key=lambda path: int(path.name.split("-")[1]))[:-rotate]:
        shutil.rmtree(old)
def stop(*_):
    save(step)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
"""
CHECKPOINTS = {"checkpoints": Output(kind="checkpoints", match="checkpoint-*")}


def steps(rig: Rig) -> list[tuple[int, int]]:
    """(step, attempt) of every complete checkpoint."""
    return [(found.step, found.attempt) for found, _ in stored_checkpoints.complete(rig.store, rig.run)]


def test_checkpoints_are_kept_while_the_command_runs_and_at_its_end(tmp_path: Path) -> None:
    wait = "save(10)\nwhile not Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
    code = TRAINER + wait + "save(20); save(30); save(40)"
    rig = Rig.of(tmp_path, (*python(code), str(tmp_path / "go")), outputs=CHECKPOINTS)
    rig.tuning["quiet"] = 1.5  # longer than the three take, on any machine
    process = rig.start()
    until(lambda: steps(rig) == [(10, 1)])
    assert process.poll() is None
    (tmp_path / "go").touch()
    assert process.wait(timeout=30) == 0
    assert steps(rig) == [(40, 1), (30, 1), (10, 1)]  # 20 was rotated away before anybody saw it whole
    record = stored_checkpoints.read_complete(rig.store, stored_checkpoints.Stored(40, 1, rig.run))
    assert record is not None
    assert (record.step, record.name, record.members, record.single) == (40, "checkpoint-40", ("main-0",), False)
    manifest = read_manifest(rig.store, rig.keys.attempt(1).checkpoint_manifest(40, "main-0"))
    assert manifest is not None
    assert manifest.files.keys() == {"state", "weights"}
    assert rig.exit().checkpoint == 40


def test_the_next_attempt_goes_on_from_the_newest(tmp_path: Path) -> None:
    code = TRAINER + "step = step + 10\nif step == 10: time.sleep(60)\nsave(step)"
    rig = Rig.of(tmp_path, python(code), outputs=CHECKPOINTS)
    process = rig.start()
    until(lambda: b"from 0" in rig.log())
    assert terminate(process) == 143
    assert steps(rig) == [(10, 1)]
    assert rig.go() == 0
    assert b"from 10 checkpoint-10\n" in rig.log(2)
    assert steps(rig) == [(20, 2), (10, 1)]


def test_a_checkpoint_cut_off_by_a_kill_is_not_taken(tmp_path: Path) -> None:
    code = TRAINER + "save(10); os.kill(os.getpid(), 9)"
    rig = Rig.of(tmp_path, python(code), outputs=CHECKPOINTS)
    rig.tuning["quiet"] = 60
    assert rig.go() == 78
    assert steps(rig) == []


def test_keep_lets_the_oldest_go_over_all_attempts(tmp_path: Path) -> None:
    code = (
        TRAINER
        + "for step in range(step + 10, step + 40, 10):\n    save(step, 9); time.sleep(0.7)\nif step == 30: sys.exit(1)"
    )
    keep = {"checkpoints": Output(kind="checkpoints", match="checkpoint-*", keep=2)}
    rig = Rig.of(tmp_path, python(code), outputs=keep, limits=Limits(retries=1, grace=2.0))
    assert rig.go() == 1
    assert steps(rig) == [(30, 1), (20, 1)]
    rig.store.put(rig.keys.attempt(1).checkpoint_files(7, "main-0") + "torn", b"x")
    assert rig.go() == 0
    assert steps(rig) == [(60, 2), (50, 2)]
    assert not [key for key in rig.objects() if key.startswith("attempts/1/checkpoints")]


def test_a_single_file_is_a_checkpoint_too(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
out = Path(os.environ["SLIPWAY_OUTPUTS"]) / "ckpt"
resume = os.environ["SLIPWAY_RESUME"]
print("from", resume and Path(resume).read_text(), flush=True)
(out / "epoch=1-step=50.ckpt").write_text("weights")
sys.exit(0 if resume else 1)
"""
    ckpt = {"ckpt": Output(kind="checkpoints", match="*.ckpt")}
    rig = Rig.of(tmp_path, python(code), outputs=ckpt, limits=Limits(retries=1))
    assert rig.go() == 1
    assert rig.go() == 0
    assert b"from weights\n" in rig.log(2)


def test_resume_of_another_run(tmp_path: Path) -> None:
    command = python(TRAINER + "save(step + 10); raise SystemExit(step == 0)")
    first = Rig.of(tmp_path, command, outputs=CHECKPOINTS)
    assert first.go() == 78
    again = Rig.of(tmp_path, command, outputs=CHECKPOINTS, resume=first.run)
    assert again.go() == 0
    assert b"from 10" in again.log()
    assert steps(again) == [(20, 1)]


def test_a_run_that_ended_before_its_first_checkpoint_is_resumed_from_the_one_before(tmp_path: Path) -> None:
    first = Rig.of(tmp_path, python(TRAINER + "save(10); raise SystemExit(1)"), outputs=CHECKPOINTS)
    assert first.go() == 78
    early = Rig.of(tmp_path, python("raise SystemExit(1)"), outputs=CHECKPOINTS, resume=first.run)
    assert early.go() == 78
    again = Rig.of(tmp_path, python(TRAINER + "save(20)"), outputs=CHECKPOINTS, resume=early.run)
    assert again.go() == 0
    assert b"from 10 checkpoint-10\n" in again.log()


@pytest.mark.parametrize("told_to", [False, True])
def test_checkpoints_of_other_packages_are_resumed_only_by_who_is_told_to(tmp_path: Path, told_to: bool) -> None:
    """`resume` in a job file, and `launcher retry --resume`."""
    before, now = ({"image": Image(environment=digit * 64)} for digit in "ab")
    first = Rig.of(tmp_path, python(TRAINER + "save(10); raise SystemExit(1)"), role=before, outputs=CHECKPOINTS)
    assert first.go() == 78
    mark = {"resume_made_with": "a" * 64} if told_to else {}
    again = Rig.of(tmp_path, python(TRAINER + "save(20)"), role=now, outputs=CHECKPOINTS, resume=first.run, **mark)
    assert again.go() == 0
    assert (b"from 10 checkpoint-10\n" in again.log()) == told_to
    assert (b"were made with other packages than this run's" in again.log()) != told_to
    result = msgspec.json.decode(again.store.get(again.keys.result), type=Result)
    assert result.resumed == (Resumed(first.run, "a" * 64) if told_to else None)


def test_a_restore_that_loses_its_checkpoint_chooses_again(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, python(TRAINER + "save(10); save(20)"), outputs=CHECKPOINTS)
    assert rig.go() == 0
    [(newest, _record), _] = list(stored_checkpoints.complete(rig.store, rig.run))
    rig.store.delete([rig.keys.attempt(1).checkpoint_files(20, "main-0") + "weights"])  # between marker and files
    with pytest.raises(NotFound):
        stored_checkpoints.restore(rig.store, newest, tmp_path / "resume", "main-0")
    again = Rig.of(tmp_path, python(TRAINER + "save(30)"), outputs=CHECKPOINTS, resume=rig.run)
    assert again.go() == 0
    assert b"from 10 checkpoint-10\n" in again.log()


OLDEST = """
import sys
if "launcher.runtime" in sys.orig_argv:
    from launcher.protocol import facts
    def oldest(run, before, rules=None):
        found = [(one.checkpoint, at) for at, one in enumerate(run.attempts[: before - 1], 1) if one.checkpoint >= 0]
        return min(found)[::-1] if found else None
    facts.newest_checkpoint = oldest
"""


@pytest.mark.parametrize("other", [False, True], ids=["its own", "of the run to resume"])
def test_the_function_that_the_exhaustive_check_explores_chooses_what_is_restored(tmp_path: Path, other: bool) -> None:
    code = TRAINER + "save(step + 10); sys.exit(int(sys.argv[1]))"
    limits = Limits(retries=2, grace=2.0)
    first = Rig.of(tmp_path, (*python(code), "1"), outputs=CHECKPOINTS, limits=limits)
    assert [first.go(), first.go()] == [1, 1]
    assert steps(first) == [(20, 2), (10, 1)]
    (tmp_path / "sitecustomize.py").write_text(OLDEST)
    rig = Rig.of(tmp_path, (*python(code), "0"), outputs=CHECKPOINTS, resume=first.run) if other else first
    rig.environ["PYTHONPATH"] = str(tmp_path)
    assert rig.go() == (0 if other else 78)
    assert b"from 10 checkpoint-10\n" in rig.log(1 if other else 3)


def test_two_checkpoints_of_one_step_have_its_keys_once(tmp_path: Path) -> None:
    """Two folders with the same number, of one output or of two: the first is taken, the other is said to stay."""
    code = """
import os, time
from pathlib import Path
for name in ("a/step-10", "a/checkpoint-10", "b/step-10", "b/step-20"):
    path = Path(os.environ["SLIPWAY_OUTPUTS"], name)
    path.mkdir(parents=True, exist_ok=True)
    (path / "weights").write_text(name)
time.sleep(1.5)
"""
    outputs = {name: Output(kind="checkpoints", match="*-*") for name in "ab"}
    rig = Rig.of(tmp_path, python(code), outputs=outputs)
    assert rig.go() == 0
    assert steps(rig) == [(20, 1), (10, 1)]
    manifest = read_manifest(rig.store, rig.keys.attempt(1).checkpoint_manifest(10, "main-0"))
    assert manifest is not None
    assert list(manifest.files) == ["weights"]
    log = rig.log().decode()
    assert "is not uploaded: another has step 10" in log
    assert "output b: step 10 is not uploaded: a has that step" in log
