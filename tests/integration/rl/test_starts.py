"""Groups that begin in the middle of a recorded episode: where, after which steps, and what cannot be begun with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image, ImageChops

from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.agents.base import Decision, History
from eval.agents.baselines import ScriptedAgent
from eval.config import ConfigError
from eval.desktop import Observation, SetupFailed
from eval.environments.login import LoginDesktop, LoginOptions
from eval.environments.registry import TasksConfig, environment, tasks_of
from eval.environments.started import StartedDesktop
from eval.episodes import read_episode
from eval.rollout.loop import RolloutLimits, rollout
from training.rl.config import RlConfig
from training.rl.rollouts.play import generate
from training.rl.rollouts.policy import PolicyQuestion, SampledTurn
from training.rl.rollouts.starts import desktop_maker
from training.rl.sections import StartConfig

pytestmark = pytest.mark.ml
OPTIONS = {"split": "train"}
COUNT = 3


class Follows:
    """Does what the expert would, and keeps the first screen of each rollout."""

    name = "follows"
    parallel = 1

    def __init__(self) -> None:
        self.first: dict[int, Image.Image] = {}

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        out = []
        for seen, history in zip(observations, histories, strict=True):
            assert isinstance(history, PolicyQuestion)
            self.first.setdefault(history.seat, seen.image)
            history.turns.append(SampledTurn((1,), (), (2,), (-0.5,)))
            out.append(Decision("", Action(ActionType.DONE) if seen.expected is None else seen.expected.action))
        return out


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The folder of the expert's episodes of all tasks."""
    asyncio.run(
        rollout(
            ScriptedAgent(Dsl(4)),
            lambda: environment("login").desktop(OPTIONS),
            tasks_of("login", COUNT, 0, OPTIONS),
            out=tmp_path / "recorded",
            benchmark="login",
            environment="login",
        )
    )
    return tmp_path / "recorded/episodes"


def config(*starts: tuple[Path | str, int], **changes: Any) -> RlConfig:
    values: dict[str, Any] = {
        "model": "hf://owner/name",
        "environment": "login",
        "options": OPTIONS,
        "tasks": TasksConfig(count=COUNT, seed=0),
        "limits": RolloutLimits(concurrency=16, attempts=1, backoff=0.0),
        "tasks_per_generation": COUNT,
        "group_size": 2,
        "steps": 1,
        "start": [StartConfig(episode=str(folder), step=step) for folder, step in starts],
    }
    return RlConfig(**{**values, **changes})


def same(one: Image.Image, other: Image.Image) -> bool:
    return ImageChops.difference(one.convert("RGB"), other.convert("RGB")).getbbox() is None


def test_a_group_begins_where_the_recorded_episode_was_after_so_many_steps(recorded: Path) -> None:
    folder, step = recorded / "login-1-1", 3
    episode, chosen = read_episode(folder), config((folder, step))
    chosen.check()
    policy = Follows()
    made = generate(policy, desktop_maker(chosen), tasks_of("login", COUNT, 0, OPTIONS), chosen, 0)
    lengths = {group.task.task_id: [len(each.turns) for each in group.rollouts] for group in made.groups}
    rest = len(episode.steps) - step
    assert lengths["login-1"] == [rest, rest]
    assert lengths["login-0"] == [len(read_episode(recorded / "login-0-0").steps)] * 2
    assert all(each.reward == 1 for group in made.groups for each in group.rollouts)
    for seat in (2, 3):
        assert same(policy.first[seat], Image.open(folder / episode.steps[step].screenshot))
    assert not same(policy.first[2], Image.open(folder / episode.steps[0].screenshot))


@pytest.mark.parametrize(
    ("starts", "said"),
    [
        ([("nowhere", 1)], r"start\[0\]\.episode: .*nowhere"),
        ([("login-1-1", 99)], r"start\[0\]\.step: 99; the episode has \d+ steps"),
        ([("login-1-1", 1), ("login-1-1", 2)], r"start\[1\]\.episode: login-1 with seed 1 has another start already"),
    ],
)
def test_what_cannot_be_begun_with_is_one_line(recorded: Path, starts: list[tuple[str, int]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(*((recorded / name, step) for name, step in starts)).check()


def test_an_episode_of_another_task_or_of_another_state_is_refused(recorded: Path) -> None:
    with pytest.raises(ConfigError, match="which is none of the tasks"):
        config((recorded / "login-2-2", 1), tasks=TasksConfig(count=2, seed=0), tasks_per_generation=2).check()
    told = json.loads((recorded / "login-1-1/episode.json").read_text())
    told["metadata"]["identity"] = "0" * 12
    (recorded / "login-1-1/episode.json").write_text(json.dumps(told))
    with pytest.raises(ConfigError, match="of another state of that task, its judge or its desktop"):
        config((recorded / "login-1-1", 1)).check()


def test_a_start_after_the_end_is_refused(recorded: Path) -> None:
    lines = (recorded / "login-1-1/steps.jsonl").read_text().splitlines()
    done = msgspec.json.decode(lines[1])
    done["action"] = {"type": "done"}
    lines[1] = json.dumps(done)
    (recorded / "login-1-1/steps.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match="the agent had said before that it was at its end"):
        config((recorded / "login-1-1", 2)).check()


def test_an_episode_that_ends_on_the_way_is_infrastructure(recorded: Path) -> None:
    """The environment has changed since: what was recorded ends it."""

    class Over(LoginDesktop):
        async def step(self, action: Action) -> Observation:
            seen = await super().step(action)
            return Observation(seen.image, seen.screen, done=True)

    (task,) = tasks_of("login", 1, 0, OPTIONS)
    steps = read_episode(recorded / "login-0-0").steps[:2]
    desktop = StartedDesktop(Over(LoginOptions(split="train")), {("login-0", 0): steps})
    with pytest.raises(SetupFailed, match="the episode ends at step 0 already"):
        asyncio.run(desktop.reset(task, 0))
