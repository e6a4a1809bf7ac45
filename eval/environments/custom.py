"""A task of one's own on a real desktop: what it begins with, and who judges it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.config import Config
from eval.config.importing import load_object
from eval.desktop import (
    BrokenByAgent,
    CheckerFailed,
    Desktop,
    Expected,
    InfraError,
    Observation,
    Score,
    Task,
    answer_of,
)
from eval.desktops.judging import home
from eval.desktops.stage import DesktopStage

if TYPE_CHECKING:
    from PIL import Image

Positive = Annotated[int, msgspec.Meta(ge=1)]


class CustomTask(Config, frozen=True):
    """A task of one's own, on a real desktop of this machine.

    instruction  what is asked
    id           its name in records; none: custom-N, its number in its source
    validator    `package.module:name` of a function (stage, actions done) that reads the desktop's state
                 (eval.desktops.stage.DesktopStage) and gives True, False, a number from 0 to 1 or a Score
    judge        the same, of a function (task, last screenshot, actions done); give one of both. Either may be async
    files        path in the desktop's home -> text, written before it begins
    start        programs that are started, each a list of program and arguments; the task begins when all have a window
    changes      with a validator: paths that may be new, changed or gone in the end. All else in the home must be as it
                 was (eval.desktops.judging.home), or the score is 0. none: the validator alone decides
    solved       with a validator: one right end, path -> text of files that are other in the end; null: it is gone.
                 `python -m eval.endstates` makes other ends of it, and shows what the validator says of each
    max_steps    of an episode
    category, difficulty  what sources filter by
    """

    instruction: str
    id: str | None = None
    validator: str | None = None
    judge: str | None = None
    files: dict[str, str] = msgspec.field(default_factory=dict)
    start: list[list[str]] = msgspec.field(default_factory=list)
    changes: list[str] | None = None
    solved: dict[str, str | None] | None = None
    max_steps: Positive | None = None
    category: str = ""
    difficulty: str = ""


class ValidatedScene:
    """The start state of a task of one's own, and its validator."""

    def __init__(self, custom: CustomTask) -> None:
        self.custom = custom
        self._start: home.Home | None = None

    async def prepare(self, stage: DesktopStage) -> None:
        for path, text in self.custom.files.items():
            await stage.write_file(path, text.encode())
        for argv in self.custom.start:
            await stage.start(argv)
        await stage.windows(len(self.custom.start))
        if self.custom.changes is not None:
            self._start = await home.read_home(stage)

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        return None

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        assert self.custom.validator is not None
        score = await judged_by(self.custom.validator, stage, done)
        if self._start is None or self.custom.changes is None:
            return score
        return await home.judged(stage, self._start, home.Allowed(self.custom.changes), score)


async def judged_by(path: str, *arguments: Any) -> Score:
    """What a validator or judge says. Raises CheckerFailed where it fails, and InfraError where it says something else:
    that is no score."""
    where = f"validator {path}"
    try:
        given = load_object(path, where)(*arguments)
        said = await given if inspect.isawaitable(given) else given
    except (InfraError, BrokenByAgent):
        raise
    except Exception as error:
        raise CheckerFailed(f"{where}: {type(error).__name__}: {error}") from error
    score = said if isinstance(said, Score) else None
    if isinstance(said, bool | int | float):
        score = Score(float(said), float(said) >= 1)
    if score is None or not (math.isfinite(score.value) and 0 <= score.value <= 1):
        raise InfraError(f"{where}: gave {said!r}; allowed: True, False, a number from 0 to 1, or a Score")
    return score


class TwiceJudged:
    """The environment's score counts; the other one is its detail `held_out`, {value, success}.

    path  `package.module:name` of a function (task, last screenshot, actions done). Where it fails, the episode is run
          again, and is never a score.
    """

    def __init__(self, inner: Desktop, path: str) -> None:
        self.inner = inner
        self.path = path
        self.task: Task | None = None
        self.last: Image.Image | None = None
        self.done: list[Action] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        self.task, self.done = task, []
        return self._seen(await self.inner.reset(task, seed))

    async def step(self, action: Action) -> Observation:
        observation = await self.inner.step(action)
        self.done.append(action)
        return self._seen(observation)

    async def answers(self) -> Observation | None:
        seen = await answer_of(self.inner)
        return None if seen is None else self._seen(seen)

    def _seen(self, observation: Observation) -> Observation:
        self.last = observation.image
        return observation

    async def score(self) -> Score:
        score = await self.inner.score()
        try:
            other = await judged_by(self.path, self.task, self.last, self.done)
        except CheckerFailed as error:
            raise InfraError(str(error)) from error  # it must never decide a score, not even one of 0
        return replace(score, detail={**score.detail, "held_out": {"value": other.value, "success": other.success}})

    async def close(self) -> None:
        await self.inner.close()
