"""A desktop whose end is judged twice: by its environment, and by a checker that nothing learns from."""

from __future__ import annotations

from dataclasses import replace

from PIL import Image

from eval.actions import Action
from eval.desktop import CheckerFailed, Desktop, InfraError, Observation, Score, Task, answer_of
from eval.environments.custom import judged_by


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
