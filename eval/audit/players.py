"""The players of an audit, as agents of a rollout: they do what was written down before, and look at nothing."""

from __future__ import annotations

from collections.abc import Callable

from eval.actions import Action, ActionType
from eval.actions.dialects.base import Dialect
from eval.agents.base import Decision
from eval.agents.computer import Computer
from eval.audit.moves import FAIL, Way
from eval.desktop import ActionRefused, Desktop, NotRunHere, Observation, Score, Task, answer_of
from eval.episodes import ToolCall

ENDS = (ActionType.DONE, ActionType.FAIL)
MOST_STEPS = 1000  # of an expert, which decides itself how long it waits for programs


class BlindPlayer:
    """Goes one way of a task, blindly: that of the task's trial. What the desktop refuses is left out, but where it
    runs no commands a way with a command did not happen, and is no try."""

    calls_tools = True

    def __init__(self, name: str, ways: Callable[[Task], list[Way]], dialect: Dialect) -> None:
        self.name = name
        self.ways = ways
        self.dialect = dialect

    async def run(self, computer: Computer) -> None:
        for move in self.ways(computer.task)[computer.task.trial].moves:
            if isinstance(move, Action):
                await computer.answer(said(self.dialect, move))
                continue
            computer.begin(Decision(move, None))
            try:
                await computer.call(ToolCall(name="run_command", arguments={"command": move}))
            except ActionRefused as why:
                raise NotRunHere(str(why)) from None


class Expert:
    """Follows the environment's own expert; where it has none, it gives up."""

    def __init__(self, dialect: Dialect, name: str = "expert") -> None:
        self.name = name
        self.dialect = dialect

    async def run(self, computer: Computer) -> None:
        while True:
            shown = computer.observation.expected
            await computer.answer(said(self.dialect, FAIL if shown is None else shown.action))


class LeftBehind:
    """A desktop on which the expert has solved the task before, and which was then reset for it again."""

    def __init__(self, inner: Desktop) -> None:
        self.inner = inner

    async def reset(self, task: Task, seed: int) -> Observation:
        """Raises NotRunHere where no expert comes to an end."""
        seen = await self.inner.reset(task, seed)
        for _ in range(MOST_STEPS):
            if seen.expected is None and not seen.done:
                raise NotRunHere("there is no expert")
            if seen.done or (seen.expected is not None and seen.expected.action.type is ActionType.FAIL):
                break
            assert seen.expected is not None
            action = seen.expected.action
            seen = await self.inner.step(action)
            if action.type is ActionType.DONE:
                break
        else:
            raise NotRunHere(f"the expert is not at its end after {MOST_STEPS} actions")
        return await self.inner.reset(task, seed)

    async def step(self, action: Action) -> Observation:
        return await self.inner.step(action)

    async def answers(self) -> Observation | None:
        return await answer_of(self.inner)

    async def score(self) -> Score:
        return await self.inner.score()

    async def close(self) -> None:
        await self.inner.close()


def said(dialect: Dialect, action: Action) -> Decision:
    """An answer with this action; its text rounds what the action has exactly."""
    return Decision(dialect.format_response(action), action)
