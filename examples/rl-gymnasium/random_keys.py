"""An agent that presses keys at random: what it does teaches a model how to answer, and nothing of the task."""

import random
from collections.abc import Sequence

from eval.actions import Action, ActionType
from eval.agents.base import Decision, History, decide
from eval.desktop import Observation
from eval.prompts import PromptBuilder


class RandomKeys:
    parallel = 1

    def __init__(self, builder: PromptBuilder, *, name: str, keys: list[str]) -> None:
        self.builder = builder
        self.name = name
        self.keys = keys

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        """The task, its seed and the number of the step decide what is drawn."""
        return [
            self._pressed(random.Random(f"{each.task.seed} {len(each.past)}").choice(self.keys)) for each in histories
        ]

    def _pressed(self, key: str) -> Decision:
        text = self.builder.dialect.format_response(Action(ActionType.KEY, keys=(key,)))
        return decide(self.builder.read_turn, text)
