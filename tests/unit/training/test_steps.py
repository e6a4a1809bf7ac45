"""eval.steps: an agent on held-out steps of recordings, in folders of episodes and in splits of a packed dataset."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval import steps as program
from eval.actions import Action, ActionType
from eval.agents.base import Decision, History
from eval.agents.config import CustomConfig
from eval.config import ConfigError
from eval.desktop import Observation
from eval.prompts import PromptBuilder, PromptConfig
from eval.rollout.loop import TaskRecord
from tests.integration.agentnet.material import recorded, recording
from tests.unit.training import material
from training.common.measuring.in_training import EvaluationConfig, asked, judged
from training.data.__main__ import main as data
from training.data.held_out import open_held_out

PROMPT = PromptConfig(decimals=3)


class NearlyRight:
    """Does what the person did, at a point `off` to the right (a fraction of the screen); `answers` are its targets."""

    parallel = 1

    def __init__(self, builder: PromptBuilder, *, name: str, data: str, split: str = "test", off: float = 0.0) -> None:
        self.name = name
        self.builder = builder
        self.off = off
        self.calls = 0
        self.samples = {
            (sample.episode.task_id, sample.step.index): sample
            for sample in open_held_out(data, split, builder)
            if sample.episode is not None and sample.step is not None
        }

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        decisions = []
        for history in histories:
            self.calls += 1
            sample = self.samples[history.task.task_id, len(history.past)]
            assert sample.expected is not None
            action = sample.expected.action
            if self.off and action.x is not None:
                action = Action(**{**action.to_json(), "x": action.x + self.off})
                decisions.append(Decision(self.builder.dialect.format_response(action), action))
            else:
                decisions.append(Decision(sample.target, action))
        return decisions


class Silent:
    """Gives an answer that is no action."""

    parallel = 1

    def __init__(self, builder: PromptBuilder, *, name: str) -> None:
        self.name = name

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        return [Decision("I wait.", None, parse_error="no action") for _ in observations]


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Episodes of a person's recording: a folder of them, and packed with a test split."""
    folder = tmp_path_factory.mktemp("held-out")
    codes = [
        "pyautogui.click(x=0.23854, y=0.51759)",
        "pyautogui.write(message='it')",
        "computer.terminate(status='success')",
    ]
    lines = [recorded(codes, f"task-{number}") for number in range(8)]
    source = recording(folder / "recording", *lines)
    (folder / "ingest.yaml").write_text(yaml.safe_dump({"format": "agentnet", "recording": str(source)}))
    assert data(["ingest", "--config", str(folder / "ingest.yaml"), "--out", str(folder / "episodes")]) == 0
    packed = {"episodes": [str(folder / "episodes")], "split": {"test": 0.5, "validation": 0.2}}
    (folder / "pack.yaml").write_text(yaml.safe_dump(packed))
    assert data(["pack", "--config", str(folder / "pack.yaml"), "--out", str(folder / "dataset")]) == 0
    return {"folder": str(folder / "episodes"), "packed": str(folder / "dataset")}


def config(held_out: dict[str, str], kind: str, factory: str = "NearlyRight", **options: Any) -> program.StepsConfig:
    if factory == "NearlyRight":
        options = {"data": held_out[kind], **options}
    agent = CustomConfig(factory=f"tests.unit.training.test_steps:{factory}", options=options)
    return program.StepsConfig(data=held_out[kind], agent=agent, prompt=PROMPT)


def values(rows: Sequence[Any]) -> dict[str, float | None]:
    return {row.metric: row.value for row in rows}


def records(out: Path) -> list[TaskRecord]:
    import msgspec

    return [msgspec.json.decode(line, type=TaskRecord) for line in (out / "tasks.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize("kind", ["folder", "packed"])
def test_the_persons_own_actions_score_one(held_out: dict[str, str], kind: str, tmp_path: Path) -> None:
    rows = program.evaluate(config(held_out, kind), tmp_path)
    assert values(rows)["matches"] == values(rows)["exact"] == 1.0
    assert values(rows)["with_box"] == values(rows)["parse_failures"] == 0.0
    lines = records(tmp_path)
    assert {line.score for line in lines} == {1.0}
    expected = len(list(open_held_out(held_out[kind], "test", PROMPT.builder())))
    assert len(lines) == expected == rows[0].n
    assert len({line.task_id for line in lines}) == expected
    assert json.loads((tmp_path / "summary.json").read_text())[0]["split"] == "test"


def test_a_point_beside_the_persons_is_worth_what_the_benchmark_gives_it(
    held_out: dict[str, str], tmp_path: Path
) -> None:
    off = 0.03
    rows = program.evaluate(config(held_out, "folder", off=off), tmp_path)
    worth = math.exp(-120 * (off - 0.01 * math.sqrt(2)))  # AgentNetBench's rule
    clicks = [line.score for line in records(tmp_path) if "click" in line.by_type]
    assert clicks == pytest.approx([worth] * len(clicks), abs=1e-9)
    assert values(rows)["matches/click"] == pytest.approx(worth)
    assert values(rows)["matches/type"] == 1.0


def test_the_score_is_that_of_an_evaluation_during_training(held_out: dict[str, str], tmp_path: Path) -> None:
    chosen = config(held_out, "packed", off=0.02)
    rows = program.evaluate(chosen, tmp_path)
    builder = PROMPT.builder()
    agent = NearlyRight(builder, name="custom", data=held_out["packed"], off=0.02)
    scores = judged(*asked(agent, list(open_held_out(held_out["packed"], "test", builder))))
    told = {row.metric: (row.value, row.ci_low, row.ci_high, row.n) for row in rows}
    assert {name: (score.value, score.low, score.high, score.n) for name, score in scores.items()} == {
        name: told[name] for name in ("exact", "matches", "with_box")
    }


def test_an_answer_that_is_no_action_is_worth_nothing(held_out: dict[str, str], tmp_path: Path) -> None:
    rows = program.evaluate(config(held_out, "folder", "Silent"), tmp_path)
    assert (values(rows)["matches"], values(rows)["parse_failures"]) == (0.0, 1.0)
    assert {(line.outcome, line.success, line.error) for line in records(tmp_path)} == {("scored", False, "no action")}


def test_a_run_that_was_cut_off_asks_only_what_is_missing(
    held_out: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = config(held_out, "folder", off=0.01)
    program.evaluate(chosen, tmp_path)
    whole = (tmp_path / "tasks.jsonl").read_bytes()
    lines = (tmp_path / "responses.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "responses.jsonl").write_text("".join(lines[:-2]))
    monkeypatch.setattr(NearlyRight, "act", Silent.act)
    program.evaluate(chosen, tmp_path)  # gives its new answer only where one is missing
    scores = [line.score for line in records(tmp_path)]
    assert scores.count(0.0) == 2
    (tmp_path / "responses.jsonl").write_text("".join(lines))
    program.evaluate(chosen, tmp_path)
    assert (tmp_path / "tasks.jsonl").read_bytes() == whole


def test_count_spreads_the_steps(held_out: dict[str, str], tmp_path: Path) -> None:
    chosen = config(held_out, "folder")
    program.evaluate(program.StepsConfig(data=chosen.data, agent=chosen.agent, prompt=PROMPT, count=4), tmp_path)
    lines = records(tmp_path)
    assert len(lines) == 4
    assert len({line.task_id.split("/")[0] for line in lines}) == 4


def test_a_click_in_a_box_counts_as_in_the_box(tmp_path: Path) -> None:
    folder = material.episodes(tmp_path / "made", count=2)
    agent = CustomConfig(factory="tests.unit.training.test_steps:NearlyRight", options={"data": str(folder)})
    rows = program.evaluate(
        program.StepsConfig(data=str(folder), agent=agent, prompt=material.PROMPT), tmp_path / "out"
    )
    assert values(rows)["click_in_box"] == 1.0
    pointed = [line for line in records(tmp_path / "out") if line.pointed]
    assert {ActionType.CLICK.value} <= {kind for line in pointed for kind in line.by_type}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "tests"}, r"no split 'tests'; allowed: .*test"),
        ({"data": "nowhere"}, "there is no folder nowhere"),
    ],
)
def test_what_is_not_there_is_one_line(
    held_out: dict[str, str], tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    chosen = {"data": held_out["packed"], "agent": CustomConfig(factory="tests.unit.training.test_steps:Silent")}
    with pytest.raises(ConfigError, match=message):
        program.evaluate(program.StepsConfig(**{**chosen, **changes}), tmp_path)


def test_a_trainings_evaluation_takes_a_packed_split_and_refuses_what_is_none(
    held_out: dict[str, str], tmp_path: Path
) -> None:
    EvaluationConfig(episodes=held_out["packed"], split="test").check()
    EvaluationConfig(episodes=held_out["folder"]).check()
    with pytest.raises(ConfigError, match=r"evaluation\.episodes: .* no split 'later'; allowed: "):
        EvaluationConfig(episodes=held_out["packed"], split="later").check()
    with pytest.raises(ConfigError, match=r"evaluation\.episodes: .* neither a packed dataset nor a folder"):
        EvaluationConfig(episodes=str(tmp_path)).check()
