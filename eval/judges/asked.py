"""A desktop whose environment judges, and on which a model is asked about the same state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from eval.actions import Action
from eval.desktop import Desktop, Observation, Score, Task, WrappedDesktop
from eval.judges.vlm import VlmJudge

if TYPE_CHECKING:
    from PIL import Image

SAID: Final = "judge_success"  # the figure of a record: 1 where the judge takes the state for a solved one


class AskedDesktop(WrappedDesktop):
    """The environment's judgement counts; what the judge says is the figure SAID of the task's record."""

    def __init__(self, inner: Desktop, judge: VlmJudge) -> None:
        super().__init__(inner)
        self.judge = judge
        self.goal = ""
        self.screens: list[Image.Image] = []
        self.done: list[Action] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        self.goal, self.screens, self.done = task.instruction, [], []
        return await super().reset(task, seed)

    def did(self, action: Action) -> None:
        self.done.append(action)

    async def seen(self, observation: Observation) -> Observation:
        self.screens = [*self.screens, observation.image][-self.judge.config.screens :]
        return observation

    async def score(self) -> Score:
        """Raises InfraError, also where the judge cannot be asked: then nothing is known of its errors."""
        score = await super().score()
        said = await self.judge.judge(self.goal, self.screens, self.done)
        figures = {**score.detail.get("figures", {}), SAID: float(said.success)}
        return replace(score, detail={**score.detail, "figures": figures, "judge": dict(said.detail)})
