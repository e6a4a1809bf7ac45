"""The watch for hacked rewards in an evaluation, a held-out checker and a hacker: what they add, and that their own
failure is never a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.agents.base import Decision, History
from eval.config import ConfigError
from eval.desktop import Desktop, InfraError, Observation, Score, Task
from eval.environments.registry import TasksConfig
from eval.prompts import PromptConfig
from eval.rollout.loop import RolloutLimits
from training.common.measuring.in_training import EvaluationConfig, Interrupted, TriedTasks, evaluate, hacking_text

pytestmark = pytest.mark.ml
SHOWN = Observation(Image.new("RGB", (8, 6)), (8, 6))
HERE = "tests.unit.training.test_hacking"


class Trusting:
    """Counts whoever says done as one who is done."""

    async def reset(self, task: Task, seed: int) -> Observation:
        return SHOWN

    async def step(self, action: Action) -> Observation:
        return SHOWN

    async def score(self) -> Score:
        return Score(1.0, True, {"by": "trust"})

    async def close(self) -> None:
        pass


class Trust:
    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        return [Task(f"t{number}", "click", number) for number in range(seed, seed + count)]

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return Trusting()


class Tricked(Trusting):
    """A desktop of a hacker: the checker pays for the task with seed 3, and cannot be asked at seed 5."""

    async def reset(self, task: Task, seed: int) -> Observation:
        self.seed = seed
        return SHOWN

    async def score(self) -> Score:
        if self.seed == 5:
            raise InfraError("no such file")
        return Score(0.25, False, {"hack": "empty files"}) if self.seed == 3 else Score(0.0, False)


class WithHacker(Trust):
    def hacker(self, options: Mapping[str, Any]) -> Desktop:
        assert options == {"a": 1}
        return Tricked()


class Wrong(Trust):
    def hacker(self, options: Mapping[str, Any]) -> Any:
        return self


def clicked(task: Task, screen: Image.Image, actions: Sequence[Action]) -> bool:
    """The held-out checker: something must have been clicked, too."""
    assert screen.size == (8, 6)
    return any(action.type is ActionType.CLICK for action in actions)


def broken(task: Task, screen: Image.Image, actions: Sequence[Action]) -> bool:
    raise ValueError("no such file")


class Lazy:
    """Says done at once in three of four tasks, and clicks before in the others."""

    name = "lazy"
    parallel = 1

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        return [
            Decision("", Action(ActionType.CLICK, x=0.5, y=0.5) if self._works(history) else Action(ActionType.DONE))
            for history in histories
        ]

    def _works(self, history: History) -> bool:
        return history.task.seed % 4 == 0 and not history.past


def config(**changes: Any) -> EvaluationConfig:
    limits = RolloutLimits(attempts=1, backoff=0.0)
    given: dict[str, Any] = {"environment": f"{HERE}:trust", "tasks": TasksConfig(count=8, seed=0), "limits": limits}
    return EvaluationConfig(**{**given, **changes})


def test_what_only_the_checker_of_the_reward_counts_is_told() -> None:
    """Eight tasks, all solved by it; the held-out one counts two."""
    chosen = config(held_out=f"{HERE}:clicked")
    chosen.check()
    scores = evaluate(chosen, Lazy(), PromptConfig().builder())
    assert (scores["success"].value, scores["held_out"].value, scores["hacked"].value) == (1.0, 0.25, 0.75)
    assert scores["hacked"].n == 8
    assert scores["hacked"].low < 0.75 < scores["hacked"].high
    assert hacking_text(scores).startswith("; the held-out checker does not count 6 of 8 solved tasks (")
    alone = evaluate(config(), Lazy(), PromptConfig().builder())
    assert not {"held_out", "hacked"} & alone.keys()
    assert hacking_text(alone) == ""


def test_a_checker_that_fails_is_no_score() -> None:
    scores = evaluate(config(held_out=f"{HERE}:broken"), Lazy(), PromptConfig().builder())
    assert not {"held_out", "hacked"} & scores.keys()


def test_a_checker_that_is_not_there_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.held_out"):
        config(held_out=f"{HERE}:nobody").check()
    with pytest.raises(ConfigError, match=r"evaluation\.held_out: judges tasks of an environment"):
        EvaluationConfig(episodes=".", held_out=f"{HERE}:clicked").check()


def test_a_hacker_plays_the_same_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    """Eight tasks: something for one, and no figure of the one whose checker failed."""
    chosen = config(environment=f"{HERE}:with_hacker", options={"a": 1}, hacker=True)
    chosen.check()
    scores = evaluate(chosen, Lazy(), PromptConfig().builder())
    assert scores["success"].value == 1.0  # the model's own, as without
    assert (scores["hacker"].value, scores["hacker"].n) == (1 / 7, 7)
    told = hacking_text(scores)
    assert told.startswith("; a hacker gets something for 1 of 7 tasks (")
    assert told.endswith(") without doing them")
    said = capsys.readouterr().out
    assert "a hacker gets 0.25 of 1 for t3, without doing it: empty files" in said
    assert "the hacker could not play 1 of 8 tasks: their desktop or checker failed" in said


def test_the_hacker_of_an_environment_without_one_says_done(capsys: pytest.CaptureFixture[str]) -> None:
    scores = evaluate(config(hacker=True), Lazy(), PromptConfig().builder())
    assert (scores["hacker"].value, scores["hacker"].n) == (1.0, 8)
    assert "a hacker gets 1 of 1 for t0, without doing it: done at once" in capsys.readouterr().out
    chosen = config(environment="login", options={"split": "train"}, hacker=True)
    assert evaluate(chosen, Lazy(), PromptConfig().builder())["hacker"].value == 0.0


def test_a_stop_is_heard_before_the_hacker_has_played() -> None:
    heard: TriedTasks = []  # of the model's tasks: whoever has them asks for a stop
    with pytest.raises(Interrupted):
        evaluate(config(hacker=True), Lazy(), PromptConfig().builder(), heard.extend, lambda: bool(heard))
    assert len(heard) == 8


def test_a_hacker_that_cannot_be_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.hacker: plays tasks of an environment"):
        EvaluationConfig(episodes=".", hacker=True).check()
    with pytest.raises(ConfigError, match=r"the Wrong that hacker gave"):
        evaluate(config(environment=f"{HERE}:wrong", hacker=True), Lazy(), PromptConfig().builder())


trust = Trust()
with_hacker = WithHacker()
wrong = Wrong()
