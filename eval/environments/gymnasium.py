"""The environment `gymnasium`: any environment of Gymnasium with a space of discrete actions. See `GymnasiumOptions`.

A key is an action of the environment, by `keys` or by its number, pressed or typed; a click does nothing, and nothing
else can be done. The episode ends with the environment's end. Its score is its return (the sum of its rewards), from
`lowest` to `highest` on the way from 0 to 1.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from PIL import Image

from eval.actions import Action, ActionType
from eval.config import Config, ConfigError, convert, need
from eval.desktop import ActionRefused, Desktop, Observation, Score, Task
from eval.environments.drawn import STILL, picture_of
from eval.identity import TaskParts

HERE: Final = "eval.environments.gymnasium"
MAX_STEPS: Final = 200
DRAWING: Final = (
    threading.Lock()
)  # most draw with pygame, which loads its parts at first use and is not made for threads


class GymnasiumOptions(Config, frozen=True):
    """
    id           the environment, such as CartPole-v1; PACKAGE:ID imports the package first
    arguments    of gymnasium.make
    instruction  what the agent is told
    keys         key -> the number of an action, such as {left: 0, right: 1}; without it the digits are
    lowest, highest  returns that are the scores 0 and 1
    solved       the return from which an episode is solved; none: highest
    pictures     rendered: the environment's own picture; told: its observation in words, as a picture
    max_steps    answers of an episode at most
    """

    id: str
    instruction: str
    highest: float
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    keys: dict[str, int] = msgspec.field(default_factory=dict)
    lowest: float = 0.0
    solved: float | None = None
    pictures: Literal["rendered", "told"] = "rendered"
    max_steps: int = MAX_STEPS

    def check(self) -> None:
        """Raises ConfigError for returns that are no range."""
        if not self.lowest < self.highest:
            raise ConfigError(f"options.highest: {self.highest:g}; allowed: above lowest, {self.lowest:g}")


class GymnasiumDesktop:
    """One environment of Gymnasium."""

    def __init__(self, options: GymnasiumOptions) -> None:
        """Raises ConfigError."""
        self.options = options
        gym = package()
        mode = {"render_mode": "rgb_array"} if options.pictures == "rendered" else {}
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws into memory, and asks for no display
        try:
            self.env = gym.make(options.id, **mode, **options.arguments)
        except (gym.error.Error, ImportError, TypeError) as error:
            raise ConfigError(f"options.id: {options.id}: {' '.join(str(error).split())[:300]}") from None
        if not isinstance(self.env.action_space, gym.spaces.Discrete):
            self.env.close()
            raise ConfigError(f"options.id: {options.id} has no discrete actions, but {self.env.action_space}")
        self.first, self.count = int(self.env.action_space.start), int(self.env.action_space.n)
        if wrong := [key for key, number in options.keys.items() if not self._knows(number)]:
            last = self.first + self.count - 1
            self.env.close()
            raise ConfigError(f"options.keys.{wrong[0]}: {options.keys[wrong[0]]}; allowed: {self.first} to {last}")
        self.total = 0.0
        self.over = False

    def _knows(self, number: int) -> bool:
        return self.first <= number < self.first + self.count

    async def reset(self, task: Task, seed: int) -> Observation:
        observation, _ = await asyncio.to_thread(self.env.reset, seed=seed)
        self.total, self.over = 0.0, False
        return await self._seen(observation)

    async def step(self, action: Action) -> Observation:
        number = None if action.type in STILL else self._number(action)
        if number is None:
            return self.last
        observation, reward, terminated, truncated, _ = await asyncio.to_thread(self.env.step, number)
        self.total += float(reward)
        self.over = bool(terminated or truncated)
        return await self._seen(observation)

    def _number(self, action: Action) -> int | None:
        """The environment's action; None for a click or a text that is none of its keys: nothing happens. Raises
        ActionRefused for what no environment here has."""
        given = action.keys[0] if action.type is ActionType.KEY and action.keys else action.text
        if action.type in (ActionType.KEY, ActionType.TYPE) and given is not None:
            if given in self.options.keys:
                return self.options.keys[given]
            if not self.options.keys and given.strip().isdecimal() and self._knows(int(given)):
                return int(given)
        if action.type in (ActionType.CLICK, ActionType.TYPE):
            return None
        known = ", ".join(self.options.keys) or f"{self.first} to {self.first + self.count - 1}"
        raise ActionRefused(f"only these keys do something here: {known}")

    async def _seen(self, observation: Any) -> Observation:
        if self.options.pictures == "told":
            image = picture_of(f"observation: {observation}\nreturn so far: {self.total:g}")
        else:
            image = Image.fromarray(await asyncio.to_thread(self._drawn)).convert("RGB")
        self.last = Observation(image, image.size, done=self.over, info={"observation": str(observation)[:1000]})
        return self.last

    def _drawn(self) -> Any:
        with DRAWING:
            return self.env.render()

    async def score(self) -> Score:
        options = self.options
        share = (self.total - options.lowest) / (options.highest - options.lowest)
        solved = self.total >= (options.highest if options.solved is None else options.solved)
        return Score(min(1.0, max(0.0, share)), solved, {"return": self.total})

    async def close(self) -> None:
        await asyncio.to_thread(self.env.close)


def package() -> Any:
    """Gymnasium. Raises ConfigError where it is not installed."""
    need("gymnasium")
    return importlib.import_module("gymnasium")


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks with the seeds from `seed` on."""
    chosen = _options(options)
    return [
        Task(f"{chosen.id}-{number}", chosen.instruction, number, max_steps=chosen.max_steps)
        for number in range(seed, seed + count)
    ]


def desktop(options: Mapping[str, Any]) -> Desktop:
    """An environment of its own. Raises ConfigError."""
    return GymnasiumDesktop(_options(options))


def redraw(task: Task, seed: int, options: Mapping[str, Any]) -> Task:
    """The task with another seed."""
    return tasks(1, seed, options)[0]


def parts(task: Task, options: Mapping[str, Any]) -> TaskParts:
    """What a task is made of: this module, and the environment of that id, of the version of Gymnasium."""
    return TaskParts((f"{HERE}:tasks", f"{HERE}:desktop"))


def provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """What defines the scores beside the options."""
    return {"revision": f"gymnasium {package().__version__}"}


def _options(options: Mapping[str, Any]) -> GymnasiumOptions:
    chosen = convert(dict(options), GymnasiumOptions, "options")
    chosen.check()
    return chosen
