"""Rollouts that were finished before an interruption: each counts exactly once, and only with the weights that
sampled it. A ledger outside the training tells which attempts were played."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from eval.desktop import Task
from eval.episodes import Episode
from eval.rollout.loop import RolloutLimits
from launcher.results import training_records as reading
from tests.integration.rl import worlds
from tests.integration.rl.conftest import rl_config
from tests.integration.rl.test_asynchronous import agree, ledger, of
from tests.integration.rl.test_training import newest, written
from tests.support.desktops import need_desktops
from training.common.entry import read_state
from training.rl.config import RlConfig
from training.rl.rollouts.finished_rollouts import FILE, FinishedRollouts
from training.rl.rollouts.generation import PlayedRollout
from training.rl.rollouts.policy import SampledTurn
from training.rl.rollouts.screen_states import ScreenState
from training.rl.train import train

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
SEATS = 8  # rollouts of a generation


def config(model: Path, **changes: Any) -> RlConfig:
    limits = RolloutLimits(concurrency=1, parse_failures=9, attempts=2, backoff=0.0)  # one after another
    chosen = {"environment": "tests.integration.rl.worlds:Ledgered", "batching": "ready", "limits": limits, "steps": 2}
    return rl_config(model, **{**chosen, **changes})


def killed(chosen: RlConfig, out: Path, point: str, time: int) -> None:
    command = [sys.executable, "-m", "tests.integration.rl.killed", point, str(time)]
    command += ["--config", str(written(chosen, out.parent)), "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]


@pytest.mark.parametrize(
    ("point", "time", "left", "again"),
    [
        # three are kept of the second generation, and the fourth is judged
        ("kept", SEATS + 4, SEATS - 3, 1),
        # all of the second generation are kept, and no checkpoint came after it
        pytest.param("stepped", 2, 0, 0, marks=pytest.mark.nightly),
        pytest.param("gate", 2, 0, 0, marks=pytest.mark.nightly),
        # there is no checkpoint at all: the weights are those of the start
        pytest.param("kept", 4, SEATS - 3 + SEATS, 1, marks=pytest.mark.nightly),
    ],
)
def test_after_sigkill_finished_rollouts_count_once_and_only_the_others_are_played(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, time: int, left: int, again: int
) -> None:
    file, out = tmp_path / "ledger", tmp_path / "out"
    monkeypatch.setenv(worlds.LEDGER, str(file))
    chosen = config(start)
    killed(chosen, out, point, time)
    before = ledger(file)
    found = newest(out)
    assert (found and read_state(str(found))["global_step"]) == (None if time == 4 else 1)
    assert train(chosen, out, None if found is None else str(found))
    told = agree(out, file, 2)
    assert len(told["began"]) == len(before["began"]) + left  # nothing that was finished is played again
    counted = [line.detail["attempt"] for line in of(reading.RlValidation, out)]
    assert len(set(before["judged"]) & set(counted)) == len(before["judged"]) - again
    assert not (out / "results" / "unfinished").exists()


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_on_real_desktops_finished_rollouts_count_once(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X servers, window managers and GTK programs, four at once; SIGKILL takes the training away from all of them."""
    need_desktops()
    file, out = tmp_path / "ledger", tmp_path / "out"
    monkeypatch.setenv(worlds.LEDGER, str(file))
    limits = RolloutLimits(concurrency=4, parse_failures=9, attempts=3, backoff=0.0)
    chosen = config(start, environment="tests.integration.rl.worlds:Forms", limits=limits)
    killed(chosen, out, "kept", SEATS + 4)
    before = ledger(file)
    kept = len(list((out / "results" / "unfinished").glob(f"*/{FILE}")))
    assert 1 <= kept < SEATS
    assert train(chosen, out, str(newest(out)))
    told = agree(out, file, 2)
    assert len(told["judged"]) == len(before["judged"]) + SEATS - kept


@pytest.mark.nightly
def test_what_other_weights_sampled_is_played_anew(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest checkpoint is lost: rollouts that came after it are of no use to the one before."""
    file, out = tmp_path / "ledger", tmp_path / "out"
    monkeypatch.setenv(worlds.LEDGER, str(file))
    chosen = config(start, steps=3)
    killed(chosen, out, "kept", 2 * SEATS + 4)
    shutil.rmtree(out / "checkpoints" / "checkpoint-2")
    played = len(ledger(file)["began"])
    assert train(chosen, out, str(out / "checkpoints" / "checkpoint-1"))
    assert len(agree(out, file, 3)["began"]) == played + 2 * SEATS


def test_sigterm_keeps_what_is_finished(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training.rl.rollouts import play

    file, out = tmp_path / "ledger", tmp_path / "out"
    monkeypatch.setenv(worlds.LEDGER, str(file))
    monkeypatch.setattr(play, "POLL", 0.001)
    keep = FinishedRollouts.keep
    kept: list[Any] = []

    def stopping(self: FinishedRollouts, *args: Any) -> None:
        keep(self, *args)
        kept.append(args)
        if len(kept) == SEATS + 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(FinishedRollouts, "keep", stopping)
    chosen = config(start, save_every=100)
    assert not train(chosen, out, None)
    monkeypatch.setattr(FinishedRollouts, "keep", keep)
    (saved,) = (out / "checkpoints").glob("checkpoint-*")
    assert saved.name == "checkpoint-1"
    before = ledger(file)
    finished = len(list((out / "results" / "unfinished").glob(f"*/{FILE}")))
    assert 2 <= finished < SEATS
    assert train(chosen, out, str(saved))
    assert len(agree(out, file, 2)["began"]) == len(before["began"]) + SEATS - finished


class Trainer:
    """What `FinishedRollouts` needs of one."""

    def __init__(self, step: int = 3) -> None:
        self.state = type("State", (), {"global_step": step})()

    def _save_optimizer_and_scheduler(self, folder: str) -> None:
        Path(folder).mkdir(parents=True)


def played(member: int) -> PlayedRollout:
    pictures = tuple(Image.new("RGB", (8, 6), (shade, member, 7)) for shade in (1, 2))
    turns = (
        SampledTurn((1, 2), pictures[:1], (3, 4), (-0.1, -1 / 3), cut=True),
        SampledTurn((5,), pictures, (6,), (-2.5e-8,)),
    )
    episode = Episode(episode_id="e", task_id="t", instruction="Do it", screen=(8, 6), score=0.5, success=False)
    return PlayedRollout(
        member, episode, turns, 0.5, states=(ScreenState(None, (8, 6), (b"\0",)),), parts={"score": 0.5}
    )


def same(one: PlayedRollout | None, other: PlayedRollout) -> bool:
    if one is None:
        return False
    pixels = [
        [(image.mode, image.size, image.tobytes()) for turn in each.turns for image in turn.images]
        for each in (one, other)
    ]
    plain = [msgspec.structs.replace(each.episode) for each in (one, other)]
    tokens = [[(turn.prompt_ids, turn.ids, turn.logprobs, turn.cut) for turn in each.turns] for each in (one, other)]
    return pixels[0] == pixels[1] and plain[0] == plain[1] and tokens[0] == tokens[1] and one.states == other.states


TASK = Task("t", "Do it", seed=5)


def test_a_rollout_comes_back_as_it_was_and_only_to_its_place(start: Path, tmp_path: Path) -> None:
    chosen, trainer = config(start), Trainer()
    kept = FinishedRollouts(trainer, chosen, tmp_path, lambda: None)
    kept.begin(3)
    kept.keep(1, TASK, None, played(2))
    assert same(kept.find(1, 2, TASK, None), played(2))
    assert len(list((tmp_path / "unfinished" / "1-2").glob("*.png"))) == 2  # a picture that two turns show is one file
    for other in (
        kept.find(2, 2, TASK, None),
        kept.find(1, 1, TASK, None),
        kept.find(1, 2, Task("t", "Do it", seed=6), None),
        kept.find(1, 2, Task("u", "Do it", seed=5), None),
        kept.find(1, 2, TASK, 9),
        FinishedRollouts(Trainer(), config(start, temperature=0.7), tmp_path, lambda: None).find(1, 2, TASK, None),
    ):
        assert other is None


def test_weights_keep_their_name_in_a_checkpoint_and_others_get_another(start: Path, tmp_path: Path) -> None:
    chosen, trainer = config(start), Trainer()
    kept = FinishedRollouts(trainer, chosen, tmp_path, lambda: None)
    kept.begin(3)
    kept.keep(0, TASK, None, played(0))
    trainer._save_optimizer_and_scheduler(str(tmp_path / "checkpoint-3"))

    def resumed(generation: int, checkpoint: Path | None, step: int) -> bool:
        place = None if checkpoint is None else str(checkpoint)
        copy = tmp_path / f"of-{generation}-{step}-{checkpoint and checkpoint.name}"
        shutil.copytree(tmp_path / "unfinished", copy / "unfinished")
        again = FinishedRollouts(Trainer(step), chosen, copy, lambda: place)
        again.on_train_begin(None, again.trainer.state, None)
        again.begin(generation)
        return same(again.find(0, 0, TASK, None), played(0))

    assert resumed(3, tmp_path / "checkpoint-3", 3)
    assert not resumed(4, tmp_path / "checkpoint-3", 3)
    assert not resumed(3, None, 0)
    old = tmp_path / "old"
    old.mkdir()
    assert not resumed(3, old, 3)  # a checkpoint that was written before weights had names


@pytest.mark.parametrize("fault", ["torn", "cut", "picture", "no picture"])
def test_what_is_damaged_is_played_anew(start: Path, tmp_path: Path, fault: str) -> None:
    kept = FinishedRollouts(Trainer(), config(start), tmp_path, lambda: None)
    kept.begin(3)
    kept.keep(0, TASK, None, played(0))
    folder = tmp_path / "unfinished" / "0-0"
    picture = next(folder.glob("*.png"))
    match fault:
        case "torn":
            (folder / FILE).unlink()
        case "cut":
            (folder / FILE).write_bytes((folder / FILE).read_bytes()[:-9])
        case "picture":
            picture.write_bytes(picture.read_bytes()[:40])
        case _:
            picture.unlink()
    assert kept.find(0, 0, TASK, None) is None
    kept.begin(3)
    kept.keep(0, TASK, None, played(0))
    assert same(kept.find(0, 0, TASK, None), played(0))


def test_where_it_cannot_be_written_the_training_goes_on_and_says_so(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = FinishedRollouts(Trainer(), config(start), tmp_path, lambda: None)
    kept.begin(3)
    (tmp_path / "unfinished").write_text("a file in its place")
    kept.keep(0, TASK, None, played(0))
    assert "0-0: not kept for a training that is interrupted: " in capsys.readouterr().out
    assert kept.find(0, 0, TASK, None) is None
