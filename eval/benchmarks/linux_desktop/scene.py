"""An instance of a template as a scene of a desktop: prepared, watched by one of its solvers, judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, get_args

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, OracleLost, Work
from eval.benchmarks.linux_desktop.template import Instance
from eval.desktop import Expected, Score
from eval.desktops.judging import home
from eval.desktops.stage import DesktopStage

Route = Literal["oracle", "second", "wrong"]
ROUTES: Final[tuple[Route, ...]] = get_args(Route)


class InstanceScene:
    """One instance. `route`: which of its solvers says what is expected."""

    def __init__(self, instance: Instance, route: Route = "oracle") -> None:
        self.instance = instance
        self.route = route
        self._start: home.Home | None = None
        self._work: Work | None = None
        self._hand: OracleActions | None = None
        self._told: Expected | None = None
        self._count = -1

    async def prepare(self, stage: DesktopStage) -> None:
        await self.instance.prepare(stage)
        self._start = await home.read_home(stage)

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        """The solver's next action, as long as all before were followed; None after another action, and without a tree.

        A solver that does not find its way says FAIL, with the reason.
        """
        if len(done) == self._count:
            return self._told
        followed = self._count < 0 or (self._told is not None and self._told.matches(done[-1]))
        self._count, before = len(done), self._count
        self._told = self._next(tree) if tree is not None and followed and len(done) == before + 1 else None
        return self._told

    def _next(self, tree: Tree) -> Expected:
        try:
            if self._work is None:
                self._hand = OracleActions(tree)
                self._work = getattr(self.instance, self.route)(self._hand)
                assert self._work is not None
                return next(self._work)
            return self._work.send(tree)
        except StopIteration:
            return Expected(Action(ActionType.DONE))
        except OracleLost as error:
            return Expected(Action(ActionType.FAIL, text=str(error)))

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        """Who gives up gets 0 where the task can be done; where it cannot, only who gives up gets anything."""
        gave_up = bool(done) and done[-1].type is ActionType.FAIL
        about = self.instance.about
        if gave_up and not about.infeasible:
            return Score(0.0, False, {"gave_up": done[-1].text or True})
        if about.infeasible and not gave_up:
            return Score(0.0, False, {"gave_up": False})
        assert self._start is not None, "prepared before it is judged"
        found = await self.instance.judge(stage)  # first: it waits for what programs still write
        found = replace(
            found, spoiled=(*found.spoiled, *await home.spoiled(stage, self._start, self.instance.allowed()))
        )
        phases = {phase.name: phase.reached for phase in found.phases}
        detail: dict[str, Any] = {"phases": phases}
        if found.spoiled:
            detail["spoiled"] = list(found.spoiled)
        return Score(found.value, found.success, detail)
