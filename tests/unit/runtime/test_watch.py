"""When a checkpoint in a folder is complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.runtime.uploads.checkpoint_watcher import Watcher, best_step, snapshot, step_of


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


def steps(watcher: Watcher, taken: set[int] | None = None, *, ended: bool = False) -> list[int]:
    return [checkpoint.step for checkpoint in watcher.complete(taken or set(), ended=ended)]


def test_quiet_for_long_enough(tmp_path: Path, clock: Clock) -> None:
    watcher = Watcher(tmp_path, "checkpoint-*", None, 10, clock)
    assert steps(watcher) == []
    write(tmp_path / "checkpoint-20/model")
    write(tmp_path / "other-10/model")
    assert steps(watcher) == []
    clock.now = 9
    write(tmp_path / "checkpoint-20/optimizer")
    assert steps(watcher) == []
    clock.now = 18
    assert steps(watcher) == []
    clock.now = 19
    assert steps(watcher) == [20]
    assert steps(watcher, {20}) == []


def test_the_end_of_the_command_completes_but_not_what_says_it_is_unfinished(tmp_path: Path, clock: Clock) -> None:
    watcher = Watcher(tmp_path, "*", None, 10, clock)
    write(tmp_path / "checkpoint-9/model")
    write(tmp_path / "checkpoint-10/model.safetensors.tmp")
    write(tmp_path / "tmp-checkpoint-11/model")
    write(tmp_path / "step=12.ckpt")
    write(tmp_path / "checkpoint-13.tmp7/model")
    (tmp_path / "checkpoint-14").mkdir()
    write(tmp_path / "checkpoint-15/model-part-1")
    write(tmp_path / "notes")
    assert steps(watcher) == []
    assert steps(watcher, ended=True) == [9, 12, 15]
    assert watcher.ignored == {"notes"}


def test_a_done_file_is_the_only_proof_where_there_is_one(tmp_path: Path, clock: Clock) -> None:
    watcher = Watcher(tmp_path, "*", "DONE", 10, clock)
    write(tmp_path / "step_5/model")
    clock.now = 100
    assert steps(watcher, ended=True) == []
    write(tmp_path / "step_5/DONE")
    assert steps(watcher) == [5]


def test_a_snapshot_survives_rotation(tmp_path: Path, clock: Clock) -> None:
    watcher = Watcher(tmp_path / "out", "*", None, 0, clock)
    write(tmp_path / "out/checkpoint-1/a/b", "weights")
    [checkpoint] = watcher.complete(set())
    assert snapshot(checkpoint, tmp_path / "snap")
    (tmp_path / "out/checkpoint-1/a/b").unlink()
    assert (tmp_path / "snap/a/b").read_text() == "weights"
    assert not snapshot(checkpoint, tmp_path / "later")


def test_a_snapshot_of_something_that_changed_is_none(tmp_path: Path, clock: Clock) -> None:
    write(tmp_path / "out/checkpoint-1/a")
    [checkpoint] = Watcher(tmp_path / "out", "*", None, 0, clock).complete(set())
    write(tmp_path / "out/checkpoint-1/b")
    assert not snapshot(checkpoint, tmp_path / "snap")


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500),
        ("epoch=3-step=700.ckpt", 700),
        ("global_step12", 12),
        ("0007", 7),
        ("model.safetensors", None),
        ("v2.5", 2),
    ],
)
def test_the_step_is_the_last_number_of_the_name(name: str, step: int | None) -> None:
    assert step_of(name) == step


def test_the_best_step_is_the_trainers(tmp_path: Path) -> None:
    assert best_step(tmp_path) is None
    write(tmp_path / "trainer_state.json", json.dumps({"best_model_checkpoint": "/out/checkpoint-40"}))
    assert best_step(tmp_path) == 40
    write(tmp_path / "trainer_state.json", json.dumps({"best_global_step": 30, "best_model_checkpoint": None}))
    assert best_step(tmp_path) == 30
