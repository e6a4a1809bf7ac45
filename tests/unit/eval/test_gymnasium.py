"""Environments of Gymnasium as ours: a classic one with its pictures, and one that is told in words."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest

from eval.actions import Action, ActionType
from eval.agents.base import Decision
from eval.agents.computer import Computer
from eval.config import ConfigError
from eval.environments import gymnasium
from eval.environments.registry import redrawing, tasks_of
from eval.records.task_record import TaskRecord
from eval.rollout.loop import RolloutLimits, rollout

CART: Final = {
    "id": "CartPole-v1",
    "instruction": "Keep the pole upright.",
    "highest": 500.0,
    "keys": {"left": 0, "right": 1},
}
LAKE: Final = {"id": "FrozenLake-v1", "instruction": "Reach the goal.", "highest": 1.0, "pictures": "told"}
STRAIGHT: Final = {**LAKE, "arguments": {"is_slippery": False}}


class Keys:
    """Presses the keys in turn, again and again."""

    name = "keys"

    def __init__(self, *keys: str) -> None:
        self.keys = keys
        self.sizes: set[tuple[int, int]] = set()
        self.pictures: list[bytes] = []

    async def run(self, computer: Computer) -> None:
        while not computer.ended.is_set():
            image = computer.observation.image
            self.sizes.add(image.size)
            self.pictures.append(image.tobytes())
            key = self.keys[len(computer.steps) % len(self.keys)]
            await computer.answer(Decision(key, Action(ActionType.KEY, keys=(key,))))


def played(options: dict[str, Any], agent: Keys, out: Path) -> TaskRecord:
    tasks = tasks_of("gymnasium", 1, 7, options)
    made = rollout(
        agent,
        lambda: gymnasium.desktop(options),
        tasks,
        out=out,
        benchmark="gym",
        environment="gymnasium",
        options={**options, **gymnasium.provenance(options)},
        limits=RolloutLimits(max_steps=50),
    )
    return asyncio.run(made)[0].record


def test_a_classic_environment_shows_its_pictures_and_its_return_is_the_score(tmp_path: Path) -> None:
    agent = Keys("left", "right")
    record = played(CART, agent, tmp_path)
    assert agent.sizes == {(600, 400)}
    assert len(set(agent.pictures)) > 5
    assert record.outcome == "scored"
    assert record.score == record.steps / 500  # a reward of 1 for each step
    assert record.success is False


def test_the_same_seed_gives_the_same_episode(tmp_path: Path) -> None:
    one, other = Keys("left", "right"), Keys("left", "right")
    assert played(CART, one, tmp_path / "1").steps == played(CART, other, tmp_path / "2").steps
    assert one.pictures == other.pictures


def test_an_environment_may_be_told_in_words(tmp_path: Path) -> None:
    agent = Keys("1", "1", "2", "1", "2", "2")  # down, down, right, down, right, right
    record = played(STRAIGHT, agent, tmp_path)
    assert (record.success, record.score, record.steps) == (True, 1.0, 6)
    assert agent.sizes == {(640, 480)}
    assert len(set(agent.pictures)) == 6


def test_one_environment_draws_at_a_time() -> None:
    """Red before: of many at once, some found pygame half loaded."""
    drawing, together = threading.Event(), []
    picture = np.zeros((4, 4, 3), np.uint8)

    def render() -> Any:
        together.append(drawing.is_set())
        drawing.set()
        time.sleep(0.01)
        drawing.clear()
        return picture

    async def work() -> None:
        desktops = [gymnasium.desktop(CART) for _ in range(8)]
        for desktop in desktops:
            desktop.env = SimpleNamespace(render=render, reset=lambda seed: (0, {}))  # type: ignore[attr-defined]
        (task,) = tasks_of("gymnasium", 1, 0, CART)
        await asyncio.gather(*(desktop.reset(task, 0) for desktop in desktops))

    asyncio.run(work())
    assert together == [False] * 8


@pytest.mark.parametrize("key", ["4", "up", "-1"])
def test_any_other_key_cannot_be_done(key: str, tmp_path: Path) -> None:
    record = played(STRAIGHT, Keys(key), tmp_path)
    assert record.refused == record.steps == 50


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"id": "NoSuch-v0"}, "NoSuch"),
        ({"keys": {"left": 2}}, "options.keys.left: 2; allowed: 0 to 1"),
        ({"highest": 0.0}, "above lowest"),
        ({"id": "Pendulum-v1"}, "no discrete actions"),
        ({"arguments": {"wheels": 3}}, "wheels"),
    ],
)
def test_options_that_are_wrong_are_one_error(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        gymnasium.desktop({**CART, **changes})


def test_training_can_draw_its_tasks_anew() -> None:
    task = redrawing("gymnasium")(tasks_of("gymnasium", 1, 0, CART)[0], 9, CART)
    assert (task.task_id, task.seed) == ("CartPole-v1-9", 9)
