"""A chain on a desktop: one job after the other. A job is done when its judge says so and nothing else was changed.
Then its windows go, its files stay, and the next job's start state is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.benchmarks.linux_chain.events import EventTask
from eval.benchmarks.linux_desktop.environment import InstanceScene, Route
from eval.benchmarks.linux_desktop.steps import content_of
from eval.benchmarks.linux_desktop.template import Instance
from eval.desktop import BrokenByAgent, Expected, NotRunHere, Score
from eval.desktops.stage import ClearedStage, DesktopStage

WAIT_S: Final = 0.5


class OffsetStage:
    """A stage on which some windows were left: a job counts its own."""

    def __init__(self, inner: DesktopStage, left: int) -> None:
        self.inner = inner
        self.left = left

    async def windows(self, count: int) -> None:
        await self.inner.windows(self.left + count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class DoneJob:
    """A job that was done, with the files that it left. None: gone."""

    instance: Instance
    left: Mapping[str, bytes | None]


class ChainScene:
    """See eval.desktops.live.TaskScene and ChangingScene. `routes`: for each job, which of its solvers is expected."""

    def __init__(self, jobs: Sequence[Instance], routes: Sequence[Route]) -> None:
        self.jobs = jobs
        self.routes = routes
        self.done: list[DoneJob] = []
        self.begun = 0  # actions before the present job
        self.happened: set[str] = set()
        self.waits = False  # the present job's solver is at its end
        self.scene = InstanceScene(jobs[0], routes[0])

    @property
    def finished(self) -> bool:
        return len(self.done) == len(self.jobs)

    async def prepare(self, stage: DesktopStage) -> None:
        if not isinstance(stage, ClearedStage):
            raise NotRunHere("missing dependency: chains need a desktop of this machine: leave out `role`")
        await self.scene.prepare(stage)

    async def after(self, stage: DesktopStage, done: Sequence[Action]) -> bool:
        """What happens after an action: an event of the job, or the next job."""
        if self.finished or (done and done[-1].type in (ActionType.DONE, ActionType.FAIL)):
            return False
        job, before = self.scene.instance, len(self.happened)
        if isinstance(job, EventTask):
            await job.meanwhile(stage, len(done) - self.begun, self.happened)
        if not await self._reached(stage):
            return len(self.happened) > before
        await self._next(stage, len(done))
        return True

    async def _reached(self, stage: DesktopStage) -> bool:
        """Whether the present job is done."""
        try:
            return (await self.scene.judge(stage, [])).success
        except BrokenByAgent:  # as long as something else lies where a file belongs
            return False

    async def _next(self, stage: DesktopStage, actions: int) -> None:
        """Notes what the job left, and begins the next one. Raises SetupFailed."""
        job = self.scene.instance
        paths = {*job.targets(), *job.removed(), *job.allowed().paths}
        self.done.append(DoneJob(job, {path: await _content(stage, path) for path in sorted(paths)}))
        if self.finished:
            return
        left = await cast(ClearedStage, stage).clear()
        self.begun, self.happened, self.waits = actions, set(), False
        number = len(self.done)
        self.scene = InstanceScene(self.jobs[number], self.routes[number])
        await self.scene.prepare(cast(DesktopStage, OffsetStage(stage, left)) if left else stage)

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        """The present job's solver; when that is at its end, it waits for the next job."""
        if self.finished:
            return Expected(Action(ActionType.DONE))
        if not self.waits:
            told = self.scene.expected(done[self.begun :], tree)
            last = len(self.done) + 1 == len(self.jobs)
            if told is None or told.action.type is not ActionType.DONE or last:
                return told
            self.waits = True
        return Expected(Action(ActionType.WAIT, duration=WAIT_S))

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        """The share of the jobs that were done one after the other, and whose files still are as they were left."""
        kept = [await self._kept(stage, each) for each in self.done]
        if not self.finished and await self._reached(stage):
            kept.append(True)
        gave_up = bool(done) and done[-1].type is ActionType.FAIL
        detail: dict[str, Any] = {"jobs": [job.about.name for job in self.jobs], "reached": kept}
        if gave_up:
            return Score(0.0, False, {**detail, "gave_up": done[-1].text or True})
        return Score(sum(kept) / len(self.jobs), sum(kept) == len(self.jobs), detail)

    async def _kept(self, stage: DesktopStage, job: DoneJob) -> bool:
        return all([await _content(stage, path) == content for path, content in job.left.items()])


async def _content(stage: DesktopStage, path: str) -> bytes | None:
    """The content of a file; None where none is, or something else."""
    try:
        return await content_of(stage, path)
    except BrokenByAgent:
        return None
