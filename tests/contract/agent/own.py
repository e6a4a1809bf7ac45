"""An agent as a user would write it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from eval.actions import Action, ActionType
from eval.agents.base import Decision, History, decide
from eval.agents.computer import Computer
from eval.desktop import Observation
from eval.prompts import PromptBuilder


class Looping:
    """Clicks the middle once, in a loop of its own."""

    def __init__(self, builder: PromptBuilder, *, name: str) -> None:
        self.name = name

    async def run(self, computer: Computer) -> None:
        await computer.answer(Decision("in the middle", Action(ActionType.CLICK, x=0.5, y=0.5)))


class Fixed:
    """Always the same text."""

    parallel = 2

    def __init__(self, builder: PromptBuilder, *, name: str, text: str) -> None:
        self.builder = builder
        self.name = name
        self.text = text

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        return [decide(partial(self.builder.read_turn, marks=seen.marks), self.text) for seen in observations]
