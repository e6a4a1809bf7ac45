"""Held-out steps and rewards on recordings of a person, which have points and no boxes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval.actions import Action, ActionType, ParseError
from eval.actions.geometry import Screen
from eval.agents.base import Decision, History
from eval.agents.baselines import ScriptedAgent
from eval.config import ConfigError, convert
from eval.desktop import Expected, Observation
from eval.environments import login
from eval.prompts import PromptBuilder, PromptConfig
from eval.rollout.loop import rollout
from tests.integration.agentnet.material import recorded, recording
from training import rewards as reward_functions
from training.common.measuring.in_training import EvaluationConfig, boxes_text, evaluate
from training.data.__main__ import main as data
from training.data.faults import Faults
from training.data.samples import Sample, load
from training.grpo.prompts import Prompts
from training.rewards import RewardSpec, SampledAnswer

ROOT = Path(__file__).parents[3]
SCREEN = Screen(1920, 1080)
SHIPPED = [
    pytest.param(job["config"], id=f"{path.stem}-{number}")
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    for number, job in enumerate(yaml.load_all(path.read_text(), yaml.CSafeLoader))
    if isinstance(job, dict) and "training.grpo" in job.get("command", [])
]
CODES = [  # points with more places than an answer has, as AgentNet's own
    "pyautogui.click(x=0.23854, y=0.51759)",
    "pyautogui.rightClick(x=0.78802, y=0.50463)",
    "pyautogui.moveTo(x=0.26198, y=0.24722)\npyautogui.dragTo(x=0.74323, y=0.25278, button='left')",
    "pyautogui.moveTo(x=0.51719, y=0.76574)\npyautogui.scroll(-3)",
    "pyautogui.write(message='it\\'s')",
    "computer.terminate(status='success')",
]
PROMPTS = [
    PromptConfig(decimals=1),
    PromptConfig(decimals=2),
    PromptConfig(decimals=3),
    PromptConfig(decimals=4),
    PromptConfig(dialect="pyautogui", decimals=3),
]


class Answering:
    """An agent that gives the answers it was made with, in order."""

    name = "answering"
    parallel = 1

    def __init__(self, builder: PromptBuilder, answers: Sequence[str]) -> None:
        self.builder = builder
        self.answers = list(answers)

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        texts, self.answers = self.answers[: len(observations)], self.answers[len(observations) :]
        return [Decision(text, self.builder.read(text).action) for text in texts]


@pytest.fixture
def person(tmp_path: Path) -> Path:
    """Episodes of a person: a click, a right click, a drag, a scroll, a text, the end; none has a box."""
    recording(tmp_path / "recording", recorded(CODES))
    config = tmp_path / "ingest.yaml"
    config.write_text(f"format: agentnet\nrecording: {tmp_path / 'recording'}\n")
    assert data(["ingest", "--config", str(config), "--out", str(tmp_path / "person")]) == 0
    return tmp_path / "person"


@pytest.fixture
def scripted(tmp_path: Path) -> Path:
    """Episodes of an environment's expert, who knows each box."""
    options = {"split": "train"}
    run = rollout(
        ScriptedAgent(PROMPTS[2].builder().dialect),
        lambda: login.desktop(options),
        login.tasks(2, 5, options),
        out=tmp_path / "scripted",
        benchmark="login",
        environment="login",
    )
    asyncio.run(run)
    return tmp_path / "scripted" / "episodes"


def held_out(folder: Path, prompt: PromptConfig, answer: Callable[[Sample], str]) -> dict[str, float]:
    builder = prompt.builder()
    agent = Answering(builder, [answer(sample) for sample in load(folder, builder)])
    scores = evaluate(EvaluationConfig(episodes=str(folder)), agent, builder)
    return {name: score.value for name, score in scores.items()}


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda p: f"{p.dialect}-{p.decimals}")
def test_the_very_targets_of_a_recording_of_a_person_match(person: Path, prompt: PromptConfig) -> None:
    assert held_out(person, prompt, lambda sample: sample.target) == {"exact": 1, "matches": 1, "with_box": 0}


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda p: f"{p.dialect}-{p.decimals}")
def test_the_very_targets_of_an_expert_match(scripted: Path, prompt: PromptConfig) -> None:
    scores = held_out(scripted, prompt, lambda sample: sample.target)
    assert (scores["exact"], scores["matches"]) == (1, 1)
    assert 0 < scores["with_box"] < 1  # typing has no box


@pytest.mark.parametrize("decimals", [3, 4])
def test_every_perfect_click_on_a_screen_of_1920x1080_passes(decimals: int) -> None:
    """165 x 165 pixels of the screen, as a recorder normalises them."""
    builder = PromptConfig(decimals=decimals).builder()
    passed = 0
    for column in range(165):
        for line in range(165):
            x, y = SCREEN.to_norm(column * 1919 // 164, line * 1079 // 164)
            recorded = Action(ActionType.CLICK, x=x, y=y)
            answered = builder.as_written(recorded)
            passed += Expected(recorded).matches(answered) and Expected(answered).credit(answered) == 1
    assert passed == 165 * 165 == 27_225


def moved(sample: Sample, dx: float) -> str:
    """The target, its first point moved to the right (or to the left, where there is no room)."""
    assert sample.step is not None
    assert sample.step.action is not None
    assert sample.builder is not None
    action = sample.step.action
    if action.x is None:
        return sample.target
    x = action.x + dx if action.x + dx <= 1 else action.x - dx
    values = {**action.to_json(), "x": x}
    return sample.builder.dialect.format_response(Action.from_json(values))


# AgentNetBench's published rule outside every box: 1 up to d = .01 x sqrt 2, then exp(-120 (d - .01 sqrt 2)).
@pytest.mark.parametrize(("dx", "points"), [(0.014, 1.0), (0.02, 0.49513), (0.05, 0.013529), (0.2, 0.0)])
def test_a_near_click_counts_by_the_distance_rule_of_the_benchmark(person: Path, dx: float, points: float) -> None:
    prompt = PromptConfig(decimals=4)
    scores = held_out(person, prompt, lambda sample: moved(sample, dx))
    # of six steps: two clicks and a scroll earn the points, a drag the mean of its two ends, two have no point
    assert scores["matches"] == pytest.approx((3 * points + (points + 1) / 2 + 2) / 6, abs=1e-4)


def test_anything_else_that_differs_is_wrong() -> None:
    expected = Expected(Action(ActionType.SCROLL, x=0.5, y=0.5, direction="down", amount=3))
    same: dict[str, Any] = {"x": 0.5, "y": 0.5, "direction": "down", "amount": 3}
    assert expected.credit(Action(ActionType.SCROLL, **same)) == 1
    for changes in ({"direction": "up"}, {"amount": 2}, {"x": None, "y": None}, {"modifiers": ("ctrl",)}):
        assert expected.credit(Action(ActionType.SCROLL, **{**same, **changes})) == 0
    assert expected.credit(Action(ActionType.CLICK, x=0.5, y=0.5)) == 0
    assert expected.credit(None) == 0


def test_in_a_box_the_box_decides_and_not_the_distance() -> None:
    expected = Expected(Action(ActionType.CLICK, x=0.5, y=0.5), (0.4, 0.4, 0.2, 0.2))
    assert expected.credit(Action(ActionType.CLICK, x=0.41, y=0.59)) == 1
    assert expected.credit(Action(ActionType.CLICK, x=0.601, y=0.5)) == 0


def test_a_line_says_how_many_steps_have_a_box(person: Path, scripted: Path) -> None:
    builder = PROMPTS[2].builder()

    def told(folder: Path) -> str:
        agent = Answering(builder, [sample.target for sample in load(folder, builder)])
        return boxes_text(evaluate(EvaluationConfig(episodes=str(folder)), agent, builder))

    assert told(person) == "; 0 of 6 steps have a box, at the others the distance decides"
    assert told(scripted).startswith("; 6 of 12 steps have a box")


# Rewards


def attempted(sample: Sample, text: str) -> SampledAnswer:
    assert sample.builder is not None
    parsed: Action | ParseError
    try:
        parsed = sample.builder.read(text).action
    except ParseError as error:
        parsed = error
    return SampledAnswer(
        [], [], text, 5, False, parsed, sample.expected, sample.step, sample.builder.dialect, "episode e step 0"
    )


def test_there_are_shipped_files_for_grpo() -> None:
    assert len(SHIPPED) >= 4


@pytest.mark.parametrize("config", SHIPPED)
def test_the_shipped_grpo_files_train_on_a_recording_of_a_person(config: dict[str, Any], person: Path) -> None:
    """Every step can be judged, its own target earns all there is, and another click on the screen earns less."""
    rewards = reward_functions.load(convert(config["rewards"], list[RewardSpec], "rewards"))
    samples = load(person, convert(config["prompt"], PromptConfig, "prompt").builder())
    prompts = Prompts(samples, rewards, Faults("fail"))
    assert len(prompts) == len(samples) == 6
    for sample in samples:
        best, other = (
            reward_functions.score(rewards, [attempted(sample, text)]).rows[0]
            for text in (sample.target, "Action: CLICK(x=0.999, y=0.999)")
        )
        assert best == [1.0] * len(rewards)
        assert other is not None
        assert math.fsum(other) < len(rewards)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_inside_box_is_refused_on_a_recording_of_a_person(person: Path, policy: Any) -> None:
    rewards = reward_functions.load([RewardSpec(name="inside_box")])
    samples = load(person, PROMPTS[2].builder())
    with pytest.raises(ConfigError, match="inside_box needs an expected box, which recordings of a person do not have"):
        Prompts(samples, rewards, Faults(policy))
