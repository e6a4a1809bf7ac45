"""A desktop whose environment judges, and on which a model is asked about the same state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from eval.actions import Action
from eval.desktop import ActionRefused, Desktop, Observation, Score, Task, ToolDesktop, answer_of
from eval.judges.vlm import VlmJudge

if TYPE_CHECKING:
    from PIL import Image

SAID: Final = "judge_success"  # the figure of a record: 1 where the judge takes the state for a solved one


class AskedDesktop:
    """The environment's judgement counts; what the judge says is the figure SAID of the task's record."""

    def __init__(self, inner: Desktop, judge: VlmJudge) -> None:
        self.inner = inner
        self.judge = judge
        self.goal = ""
        self.screens: list[Image.Image] = []
        self.done: list[Action] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        self.goal, self.screens, self.done = task.instruction, [], []
        return self._seen(await self.inner.reset(task, seed))

    async def step(self, action: Action) -> Observation:
        observation = await self.inner.step(action)
        self.done.append(action)
        return self._seen(observation)

    @property
    def tools(self) -> tuple[str, ...]:
        return self.inner.tools if isinstance(self.inner, ToolDesktop) else ()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        inner: object = self.inner
        if not isinstance(inner, ToolDesktop):
            raise ActionRefused(f"there is no tool {name[:60]!r} here")
        said, observation = await inner.call(name, arguments)
        return said, self._seen(observation)

    async def answers(self) -> Observation | None:
        seen = await answer_of(self.inner)
        return None if seen is None else self._seen(seen)

    def _seen(self, observation: Observation) -> Observation:
        self.screens = [*self.screens, observation.image][-self.judge.config.screens :]
        return observation

    async def score(self) -> Score:
        """Raises InfraError, also where the judge cannot be asked: then nothing is known of its errors."""
        score = await self.inner.score()
        said = await self.judge.judge(self.goal, self.screens, self.done)
        figures = {**score.detail.get("figures", {}), SAID: float(said.success)}
        return replace(score, detail={**score.detail, "figures": figures, "judge": dict(said.detail)})

    async def close(self) -> None:
        await self.inner.close()
