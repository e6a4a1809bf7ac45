"""The records of a training.rl run, as the launcher reads them: nothing is missing, nothing is there twice."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval.environments.registry import TasksConfig
from launcher.results import training_records as reading
from launcher.results.training_records import read_folder
from tests.integration.rl.conftest import rl_config
from tests.support.made_once import made_once
from training.common.measuring.in_training import EvaluationConfig
from training.rl.config import RlConfig
from training.rl.train import train

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


def config(model: Path, **changes: Any) -> RlConfig:
    chosen = {"steps": 3, "advantage": "gigpo", "average": "rollouts", "task_order": "curriculum", "turn_cost": 0.02}
    return rl_config(model, **{**chosen, **changes})


def of(kind: type[Any], folder: Path) -> list[Any]:
    return [line for line in read_folder(folder) if isinstance(line, kind)]


@pytest.fixture(scope="module")
def out(start: Path) -> Path:
    """A training of three generations of two groups of four, by GiGPO and M-GRPO's mean."""
    return made_once("rl-told", play, start)


def play(folder: Path, start: Path) -> None:
    assert train(config(start), folder, None)


def broken_once(text: str) -> str:
    """A row of broken bytes as one: how many characters stand for them depends on where tokens part them."""
    return re.sub("\ufffd+", "\ufffd", text)


def test_every_rollout_and_turn_is_there_once(out: Path) -> None:
    results = out / "results"
    rollouts, turns = of(reading.RlRollout, results), of(reading.RlTurn, results)
    places = [(line.step, line.group, line.rollout) for line in rollouts]
    assert places == [(step, group, rollout) for step in (1, 2, 3) for group in (0, 1) for rollout in range(4)]
    assert all(line.outcome == "scored" and line.total == pytest.approx(line.total) for line in rollouts)
    lengths = Counter((line.step, line.group, line.rollout) for line in turns)
    assert lengths == {place: line.turns for place, line in zip(places, rollouts, strict=True)}
    tokens = Counter[tuple[int, ...]]()
    for line in turns:
        assert len(line.token_ids) == len(line.logprobs) == len(line.texts) == line.tokens
        texts = re.sub(r"<\|\w+\|>", "", "".join(line.texts))
        assert broken_once(texts).strip() == broken_once(line.response).strip()
        tokens[line.step, line.group, line.rollout] += line.tokens
    assert tokens == {place: line.tokens for place, line in zip(places, rollouts, strict=True)}
    assert any(line.advantage for line in turns)
    for line in rollouts:  # turn_cost is 0.02
        assert line.parts["turn_cost"] == pytest.approx(-0.02 * line.turns)
        assert sum(line.parts.values()) == pytest.approx(line.total)
    judged = [(line.step, line.group, line.rollout) for line in of(reading.RlValidation, results)]
    assert judged == places


def test_steps_groups_and_the_training_are_told(out: Path) -> None:
    results = out / "results"
    (training,) = of(reading.RlTraining, results)
    assert (training.method, training.config["group_size"]) == ("gigpo", 4)
    assert [line.status for line in of(reading.RlStatus, results)] == ["started", "done"]
    assert {line.step for line in of(reading.RlStep, results)} >= {1, 2, 3}
    totals: dict[tuple[int, int], set[float]] = {}
    for line in of(reading.RlRollout, results):
        totals.setdefault((line.step, line.group), set()).add(line.total)
    for line in of(reading.RlGroup, results):
        assert (line.dropped is not None) == (len(totals[line.step, line.group]) == 1)
        assert line.instruction


def test_the_screens_of_one_group_a_generation_are_kept(out: Path) -> None:
    results = out / "results"
    kept = {(line.step, line.group, line.rollout): line.episode for line in of(reading.RlRollout, results)}
    assert {place[:2] for place, episode in kept.items() if episode} == {(1, 0), (2, 0), (3, 0)}
    observations = of(reading.RlObservation, results)
    assert {(line.step, line.group) for line in observations} == {(1, 0), (2, 0), (3, 0)}
    for line in observations:
        with Image.open(results / kept[line.step, line.group, line.rollout] / line.screenshot) as picture:
            assert picture.size == line.size


def test_a_resumed_training_tells_the_same_and_nothing_twice(out: Path, start: Path, tmp_path: Path) -> None:
    """It was cut off while it told of its third step: with the checkpoint of the second, and half a line."""
    again = tmp_path / "out"
    shutil.copytree(out, again)
    for path in (again / ".done", again / "checkpoints" / "checkpoint-3"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    last = max((again / "results" / "records").iterdir())
    last.write_bytes(last.read_bytes()[:-30])
    assert train(config(start), again, str(again / "checkpoints" / "checkpoint-2"))
    for kind in (reading.RlGroup, reading.RlRollout, reading.RlTurn, reading.RlAction, reading.RlValidation):
        assert timeless(of(kind, again / "results")) == timeless(of(kind, out / "results")), kind
    assert [line.status for line in of(reading.RlStatus, again / "results")] == ["started", "resumed", "done"]


def timeless(lines: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(x, name) for name in x.__struct_fields__ if name not in ("time", "seconds")) for x in lines]


def test_a_void_rollout_is_told_with_its_reason(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from eval.desktop import DesktopGone
    from tests.integration.rl import worlds

    begun = 0
    begin = worlds.RightSide.reset

    async def breaking(desktop: Any, task: Any, seed: int) -> Any:
        nonlocal begun
        begun += 1
        if begun == 2:
            raise DesktopGone("the cable")
        return await begin(desktop, task, seed)

    monkeypatch.setattr(worlds.RightSide, "reset", breaking)
    limits = rl_config(start).limits
    import msgspec

    once = msgspec.structs.replace(limits, attempts=1)
    assert train(config(start, steps=1, limits=once, kept_groups=0), tmp_path, None)
    void = [line for line in of(reading.RlRollout, tmp_path / "results") if line.outcome == "void"]
    assert [(line.total, line.success, line.error) for line in void] == [(None, None, "DesktopGone: the cable")]
    assert len(of(reading.RlRollout, tmp_path / "results")) == 8
    assert not (tmp_path / "results" / "rollouts").exists()


def test_a_training_tells_of_its_baseline_and_its_evaluations(start: Path, tmp_path: Path) -> None:
    """By the numbers that the evaluation itself gives in the metrics: no line of them is missing or there twice."""
    evaluation = EvaluationConfig(
        environment="tests.integration.rl.worlds:Sides", tasks=TasksConfig(count=3, seed=50), every=1, at_start=True,
        metric="score", keep="last",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(tmp_path / "metrics.jsonl"))
        assert train(rl_config(start, steps=2, evaluation=evaluation), tmp_path / "out", None)
    results = tmp_path / "out" / "results"
    told = [line for line in of(reading.RlRollout, results) if line.phase != "train"]
    moments = [("baseline", 0), ("eval", 1), ("eval", 2)]
    assert [(line.phase, line.step, line.group) for line in told] == [
        (*moment, group) for moment in moments for group in range(3)
    ]
    figures = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    scores = {line["step"]: line["value"] for line in figures if line["name"] == "eval/score"}
    assert scores.keys() == {0, 1, 2}
    for phase, step in moments:
        mine = [line.total for line in told if (line.phase, line.step) == (phase, step)]
        assert sum(mine) / 3 == pytest.approx(scores[step])
    rows = json.loads((results / "summary.json").read_text())
    by = {row["agent"]: row for row in rows if row["metric"] in {"score", "reward"}}
    assert (by["trained"]["steps"], by["trained"]["value"]) == ([2], scores[2])
    assert (by["untrained"]["steps"], by["untrained"]["value"]) == ([0], scores[0])
    if scores[1] >= scores[2]:
        assert (by["checkpoint-1"]["steps"], by["checkpoint-1"]["value"]) == ([1], scores[1])
    assert by["sampled"]["steps"] == [1]  # the last generation's, by the weights after the first step
    turns = Counter(
        (line.phase, line.step, line.group) for line in of(reading.RlTurn, results) if line.phase != "train"
    )
    assert turns == {(line.phase, line.step, line.group): line.turns for line in told}
    seeds = {line.seed for line in of(reading.RlGroup, results) if line.phase != "train"}
    assert len(seeds) == 3
    assert not seeds & {line.seed for line in of(reading.RlGroup, results) if line.phase == "train"}
