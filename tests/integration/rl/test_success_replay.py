"""A success of before in the place of a failure: in the rows of the loss, not in the records, and after a resume."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from eval.desktop import Score
from eval.environments.registry import TasksConfig
from launcher.results import training_records as reading
from launcher.results.training_records import read_folder
from tests.integration.rl import worlds
from tests.integration.rl.conftest import rl_config
from tests.integration.rl.test_training import same
from training.rl.config import RlConfig
from training.rl.sections import ReplayConfig
from training.rl.train import make_trainer, train

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


def config(model: Path) -> RlConfig:
    easy = "tests.integration.rl.worlds:Easy"
    tasks = TasksConfig(count=2, seed=6)  # whose first rollouts have a success
    return rl_config(model, environment=easy, tasks=tasks, reward="success", replay=ReplayConfig(), steps=3)


def solved_at_first(patch: pytest.MonkeyPatch, judged: int = 0) -> None:
    """From the second generation of eight rollouts on, nothing is solved."""
    score = worlds.Lenient.score

    async def judging(desktop: Any) -> Score:
        nonlocal judged
        judged += 1
        return await score(desktop) if judged <= 8 else Score(0.0, False)

    patch.setattr(worlds.Lenient, "score", judging)


def test_a_success_of_the_first_generation_is_trained_on_again_in_the_second(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returns 0, 0, 0 and 1 have the mean 1/4 and the deviation 1/2: (1 - 1/4) / (1/2 + 1/10000) = 1.4997."""
    import torch

    solved_at_first(monkeypatch)
    trainer = make_trainer(config(start), tmp_path)
    trainer.prepare(0)
    first = trainer.last
    with torch.no_grad():  # as by a step
        for weight in trainer.model.parameters():
            weight.mul_(1.1)
    prepared = trainer.prepare(1)
    tokens = sum(row.tokens for row in prepared)  # the divisor of the mean
    trainer.recorder.writer.cut()
    keys = [group.task.task_id for group in trainer.last.groups]
    solved = {
        keys.index(group.task.task_id): [each for each in group.rollouts if each.episode.success][-1]
        for group in first.groups
        if any(each.episode.success for each in group.rollouts)
    }
    assert solved
    assert len(trainer.replay.pool.stored) == len(solved)
    for number in range(2):
        rows = [row for row in prepared if row.at[0] == number]
        if number not in solved:
            assert {each for row in rows for each in row.coefficients} == {0.0}
            continue
        theirs = [row for row in rows if row.at[1] == 3]
        assert tuple(row.turn for row in theirs) == solved[number].turns
        for row in rows:
            advantage = 1.4997 if row in theirs else -0.4999
            assert [tokens * each for each in row.coefficients] == pytest.approx([advantage] * row.tokens, abs=1e-4)
        now, _ = trainer.log_probabilities(rows)
        for row, line in zip(rows, now, strict=True):
            assert list(row.old) == pytest.approx(list(row.turn.logprobs), abs=1e-3)
            assert (list(row.old) == pytest.approx(line.tolist(), abs=1e-3)) == (row not in theirs)
    # the gate looks at what this generation sampled, and records tell what was played
    turns = sum(len(each.turns) for group in trainer.last.groups for each in group.rollouts)
    gate = json.loads((tmp_path / "results" / "gate.json").read_text())
    replaced = sum(len(trainer.last.groups[number].rollouts[3].turns) for number in solved)
    assert gate["turns"] == turns - replaced
    told = [line for line in read_folder(tmp_path / "results") if isinstance(line, reading.RlTurn)][-turns:]
    for line in told:
        assert (line.advantage is None) == (line.group in solved and line.rollout == 3)
    outcomes = [line for line in read_folder(tmp_path / "results") if isinstance(line, reading.RlRollout)]
    assert [line.success for line in outcomes[8:]] == [False] * 8


def test_a_resumed_training_replays_the_same_and_ends_with_the_same_bits(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, again = tmp_path / "straight", tmp_path / "again"
    with monkeypatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(tmp_path / "metrics.jsonl"))
        solved_at_first(patch)
        assert train(config(start), straight, None)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    replayed = [line["value"] for line in lines if line["name"] == "train/replayed"]
    assert replayed[0] == 0
    assert min(replayed[1:]) > 0
    shutil.copytree(straight, again)
    (again / ".done").unlink()
    for name in ("checkpoints/checkpoint-2", "checkpoints/checkpoint-3", "model"):
        shutil.rmtree(again / name)
    with monkeypatch.context() as patch:
        solved_at_first(patch, judged=8)
        assert train(config(start), again, str(again / "checkpoints" / "checkpoint-1"))
    assert same(straight / "model", again / "model")
