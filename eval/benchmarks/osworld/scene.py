"""A task of OSWorld's format as a scene of a desktop: set up, and judged by the public evaluators."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.benchmarks.osworld.judging import PublicJudge
from eval.benchmarks.osworld.machine import Machine, lacking_line
from eval.benchmarks.osworld.served import served
from eval.benchmarks.osworld.steps import StepPlaces, Steps
from eval.benchmarks.osworld.tasks import PublicTask
from eval.desktop import Expected, NotRunHere, Score
from eval.desktops.stage import DesktopStage


@dataclass(frozen=True)
class PublicPlaces:
    """What the tasks of a folder share.

    folder   that of the task files
    machine  what is here, with the folder of downloads
    judge    who judges
    """

    folder: Path
    machine: Machine
    judge: PublicJudge


class PublicScene:
    """One task, for one episode."""

    def __init__(self, task: PublicTask, places: PublicPlaces) -> None:
        self.task = task
        self.places = places
        self.cache: Path | None = None

    async def prepare(self, stage: DesktopStage) -> None:
        """Does the steps of `config`. Raises NotRunHere for what the task lacks here, before anything is done."""
        if lacking := self.places.machine.lacks(self.task):
            what = lacking_line(self.task, lacking, self.places.machine.evaluators)
            raise NotRunHere(f"missing dependency: {what}")
        if not self.task.infeasible:
            self.places.judge.check()
        # below /tmp: the user nobody, who judges, must get there
        self.cache = Path(tempfile.mkdtemp(prefix="slipway-osworld-", dir="/tmp"))
        weakref.finalize(self, shutil.rmtree, self.cache, ignore_errors=True)
        for name in self.task.cached:
            if (kept := self._downloads()) is not None and (kept / name).is_file():
                shutil.copyfile(kept / name, self.cache / name)
        async with served(stage) as desktop:
            await Steps(desktop, self._step_places()).do(self.task.setup)
            await desktop.rest()

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        """Nobody knows: the format has no solutions."""
        return None

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        """The rule of `DesktopEnv.evaluate`: who gives up gets 1 where the task cannot be done and 0 elsewhere; else
        the evaluators decide. A score of 1 counts as solved."""
        gave_up = bool(done) and done[-1].type is ActionType.FAIL
        detail: dict[str, Any] = {"task_file": self.task.digest}
        if self.task.infeasible or gave_up:
            value = float(self.task.infeasible and gave_up)
            return Score(value, value == 1.0, {**detail, "gave_up": gave_up})
        assert self.cache is not None
        async with served(stage) as desktop:
            steps = Steps(desktop, self._step_places(), judging=True)
            await steps.do(self.task.before_judging)
            await desktop.rest()  # also what the agent began last, such as a file that is being saved
            verdict = await self.places.judge.judge(
                self.task.evaluator,
                address=desktop.address,
                token=desktop.token,
                cache=self.cache,
                screen=desktop.screen,
            )
        assert verdict.score is not None
        detail["evaluators"] = f"desktop-env {verdict.package}"
        if steps.passed_over:
            detail["before_judging"] = steps.passed_over
        return Score(verdict.score, verdict.score == 1.0, detail)

    def _downloads(self) -> Path | None:
        cache = self.places.machine.cache
        return None if cache is None else cache / self.task.file_id

    def _step_places(self) -> StepPlaces:
        assert self.cache is not None
        return StepPlaces(self.cache, self._downloads(), self.places.folder, self.places.machine.internet)
