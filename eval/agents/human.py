"""A person as an agent: their mouse and keyboard become the actions of an episode."""

from __future__ import annotations

from eval.actions import Action, Unrepresentable
from eval.actions.dialects.base import Dialect
from eval.agents.computer import Computer


class HumanAgent:
    """Works on real desktops only, one at a time. Each step tells its action in the dialect, where that can say it."""

    one_at_a_time = True

    def __init__(self, dialect: Dialect, name: str = "human") -> None:
        self.name = name
        self.dialect = dialect

    async def run(self, computer: Computer) -> None:
        print(f"the task: {computer.task.instruction}", flush=True)
        await computer.follow(self._written)

    def _written(self, action: Action) -> str:
        try:
            return self.dialect.format_response(action)
        except Unrepresentable:
            return ""
