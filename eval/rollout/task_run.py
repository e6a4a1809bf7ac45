"""One task of a rollout: its attempts, and within an attempt its steps and its judgement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from eval.agents.computer import Computer, EpisodeOver, LoopingAgent
from eval.agents.desktop_calls import timed
from eval.config import ConfigError
from eval.desktop import (
    AgentTimeout,
    BadFrame,
    BrokenByAgent,
    Desktop,
    EnvironmentFault,
    InfraError,
    Interface,
    NotRunHere,
    Observation,
    Score,
    Task,
    ToolDesktop,
    checked,
    has_tools,
)
from eval.episodes import Episode, EpisodeWriter, Step
from eval.identity import digest_of
from eval.records.earlier_results import content_of, was_cut
from eval.records.task_record import TaskRecord, did_not_run, episode_id, task_record, tools_used
from eval.rollout.limits import RolloutLimits
from eval.rollout.tool_servers import with_servers

FRAMES_AHEAD: Final = 4  # of one episode that wait to be written; more would fill the memory of a slow disk


class Rollout(msgspec.Struct, frozen=True):
    """The result of a task. `episode` is None when `out` already held the record, or when every attempt was `infra`."""

    record: TaskRecord
    episode: Episode | None = None


class TaskRun:
    """One task: its attempts, and within one attempt its steps."""

    def __init__(
        self,
        looping: LoopingAgent,
        make_desktop: Callable[[], Desktop],
        task: Task,
        limits: RolloutLimits,
        folder: Path | None,
        agent: str,
        benchmark: str,
        environment: str,
        version: str,
        rules: dict[str, Any],
        *,
        interface: Interface,
        judge: bool = True,
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        """`turns`: taken while the agent acts, with the desktop ready before; None: it may act at once."""
        self.looping = looping
        self.make_desktop = make_desktop
        self.task = task
        self.limits = limits
        self.folder = folder
        self.agent = agent
        self.benchmark = benchmark
        self.environment = environment
        self.version = version
        self.rules = rules
        self.judge = judge
        self.interface = interface
        self.turns = turns or asyncio.Semaphore()
        self.waited = 0.0  # seconds of this attempt, for its turn
        self.screen = (0, 0)
        self.started = datetime.now(UTC)
        self.writer: EpisodeWriter | None = None
        self.frames: list[asyncio.Future[str]] = []  # that are being written
        self.steps: list[Step] = []
        self.agent_failure = ""
        self.broke = ""  # how the agent broke the desktop
        self.state: bool | None = None  # whether the final state was the solved one, whatever the answers were
        self.desktop: Desktop | None = None  # the one that is open
        self.cut = False  # the limit of steps ended the episode

    async def attempts(self) -> Rollout:
        error = ""
        for attempt in range(1, self.limits.attempts + 1):
            if attempt > 1:
                await asyncio.sleep(self.limits.backoff * 2 ** (attempt - 2))
            started = time.monotonic()
            try:
                if self.task.not_run:
                    raise NotRunHere(self.task.not_run)
                episode = await self._episode()
            except NotRunHere as why:  # no further try would find what is missing
                episode = self._outcome(None, str(why), self._took(started), "not run")
                if self.writer is not None:
                    self.writer.close(episode)
                return Rollout(did_not_run(self._record(episode, self._took(started), attempt), str(why)))
            except InfraError as failure:
                error = f"{type(failure).__name__}: {failure}"
                continue
            finally:
                took = self._took(started)
            return Rollout(self._record(episode, took, attempt), episode)
        if self.writer is not None:  # keeps what the last attempt recorded, for people to look at
            self.writer.close(self._outcome(None, error, took))
        return Rollout(self._record(self._outcome(None, error, took), took, self.limits.attempts))

    async def once(self) -> Episode:
        """One attempt. Raises InfraError, after what was recorded is written; the same when it is cancelled."""
        started = time.monotonic()
        try:
            return await self._episode()
        except (InfraError, asyncio.CancelledError) as failure:
            stopped = isinstance(failure, asyncio.CancelledError)
            self.agent_failure = "stopped by a person" if stopped else ""
            if self.writer is not None:
                why = None if stopped else f"{type(failure).__name__}: {failure}"
                self.writer.close(self._outcome(None, why, self._took(started)))
            raise

    async def _episode(self) -> Episode:
        self.started, clock = datetime.now(UTC), time.monotonic()
        self.writer = EpisodeWriter(self.folder) if self.folder else None
        self.steps, self.broke, self.waited, self.cut, self.state = [], "", 0.0, False, None
        desktop = self.desktop = with_servers(self.make_desktop(), self.looping)
        try:
            observation = await timed(desktop.reset(self.task, self.task.seed), self.limits.reset_timeout, "reset")
            self.screen = observation.screen
            score: Score | None = None
            try:
                ready = time.monotonic()
                async with self.turns:
                    self.waited = time.monotonic() - ready
                    failed = await self._steps(desktop, observation)
                if self.judge:
                    score = await self._judged(desktop)
                    self.state = score.success
            except BrokenByAgent as broken:
                failed, score = str(broken), Score(0.0, False) if self.judge else None
                self.broke = failed
        finally:
            await self._close()
            await self._written()
        self.agent_failure = failed
        if failed and score is not None:
            score = Score(0.0, False, {**score.detail, "agent_failure": failed})
        if self.steps and score is not None:
            self.steps[-1] = msgspec.structs.replace(self.steps[-1], reward=score.value, done=True)
        episode = self._outcome(score, None, self._took(clock))
        if self.writer is not None:
            self.writer.close(episode)
        return episode

    async def _judged(self, desktop: Desktop) -> Score:
        """The checker's judgement. A checker that raises is asked once more, as a machine may fail once. Raises
        BrokenByAgent where it raises on the state that the agent left alone, and not on the untouched one."""
        try:
            return checked(await timed(desktop.score(), self.limits.reset_timeout, "score"))
        except EnvironmentFault:
            pass
        try:
            return checked(await timed(desktop.score(), self.limits.reset_timeout, "score"))
        except EnvironmentFault as fault:
            await self._close()  # it may be the only one that there is
            if not await self._judges_untouched():
                raise
            words = "the checker fails on the state that the agent left, and judges the untouched one"
            raise BrokenByAgent(f"{words}: {fault}") from fault

    async def _judges_untouched(self) -> bool:
        """Whether the checker judges the start state, on a desktop of its own."""
        desktop = self.desktop = self.make_desktop()
        try:
            await timed(desktop.reset(self.task, self.task.seed), self.limits.reset_timeout, "reset")
            checked(await timed(desktop.score(), self.limits.reset_timeout, "score"))
        except (InfraError, BrokenByAgent) as error:
            print(f"{self.task.task_id}: the checker does not judge the untouched state either: {error}", flush=True)
            return False
        finally:
            await self._close()
        return True

    def _took(self, since: float) -> int:
        """Milliseconds, without the time in which the desktop was ready and the agent busy elsewhere."""
        return round((time.monotonic() - since - self.waited) * 1000)

    def _outcome(
        self, score: Score | None, error: str | None, took: int, without: Literal["infra", "not run"] = "infra"
    ) -> Episode:
        """The finished episode: judged or not, or with an error, and `without` a score."""
        metadata: dict[str, Any] = {} if score is None or not score.detail else {"score": dict(score.detail)}
        if self.task.trial:
            metadata["trial"] = self.task.trial
        if self.task.identity:  # tries of one task are only compared where it is the same
            metadata["identity"] = digest_of(dict(self.task.identity))
        if self.interface != "gui":
            metadata["interface"] = {"kind": self.interface, **tools_used(self.steps)}
        if score is None and error is None and self.agent_failure:
            metadata["agent_failure"] = self.agent_failure
        return Episode(
            episode_id=episode_id(self.task),
            task_id=self.task.task_id,
            instruction=self.task.instruction,
            goal=self.task.instruction,
            seed=self.task.seed,
            screen=self.screen,
            success=None if score is None else score.success,
            score=None if score is None else score.value,
            outcome="scored" if error is None else without,
            error=error,
            steps=tuple(self.steps),
            agent=self.agent,
            environment=self.environment,
            started=self.started.isoformat(timespec="milliseconds"),
            duration_ms=took,
            tags=self.task.tags,
            metadata=metadata,
        )

    def _record(self, episode: Episode, took: int, attempt: int) -> TaskRecord:
        return task_record(
            self.task,
            episode,
            benchmark=self.benchmark,
            version=self.version,
            took=took,
            attempt=attempt,
            kept=self.folder is not None,
            rules=self.rules,
            used=tools_used(episode.steps) if self.interface != "gui" else {},
            max_steps=self.limits.steps_of(self.task),
            broke=self.broke,
            content=content_of(self.task),
            cut=self.cut,
            state=self.state,
        )

    async def _room(self) -> None:
        """Returns when few enough frames wait to be written. Raises OSError where one could not be written."""
        while len(self.frames) >= FRAMES_AHEAD:
            await asyncio.wait(self.frames, return_when=asyncio.FIRST_COMPLETED)
            for each in [each for each in self.frames if each.done()]:
                self.frames.remove(each)
                each.result()

    async def _written(self) -> None:
        """Returns when every frame is on the disk. Raises OSError where one could not be written."""
        frames, self.frames = self.frames, []
        done = await asyncio.gather(*frames, return_exceptions=True)
        if (error := next((each for each in done if isinstance(each, BaseException)), None)) is not None:
            raise error

    async def _close(self) -> None:
        """Closes the open desktop, if there is one. One that cannot be closed does not change the score of its episode;
        the failure is printed."""
        desktop, self.desktop = self.desktop, None
        if desktop is None:
            return
        try:
            await timed(desktop.close(), self.limits.reset_timeout, "close")
        except InfraError as error:
            print(f"{self.task.task_id}: closing the desktop: {error}", flush=True)

    async def _steps(self, desktop: Desktop, observation: Observation) -> str:
        """Lets the agent work, into `self.steps`. Gives why it failed by its answers, or "" when it did not."""
        tools = desktop.tools if isinstance(desktop, ToolDesktop) and has_tools(desktop) else None
        able = bool(tools) if self.interface == "tools" else tools is not None
        if self.interface != "gui" and not able:
            where = f"the desktops of environment {self.environment} have no tools"
            raise ConfigError(f"interface: {self.interface}: {where}; allowed: gui")
        computer = Computer(
            desktop,
            self.task,
            observation,
            max_steps=self.limits.steps_of(self.task),
            step_timeout=self.limits.step_timeout,
            parse_failures=self.limits.parse_failures,
            refused=self.limits.refused,
            waiting=self.limits.waiting,
            save=self._save,
            room=self._room,
            interface=self.interface,
        )
        self.steps = computer.steps
        await self._work(computer)
        if computer.failure is not None:
            raise computer.failure
        self._save(len(self.steps), computer.observation)
        self.cut = was_cut(computer)
        return computer.failed

    async def _work(self, computer: Computer) -> None:
        """Runs the agent's loop until it returns or the episode has ended, whichever is first."""
        loop = asyncio.create_task(self.looping.run(computer))
        ended = asyncio.create_task(computer.ended.wait())
        try:
            while not (loop.done() or ended.done()):
                left = computer.heard + self.limits.answer_timeout - time.monotonic()
                if left <= 0 and not computer.busy:
                    raise AgentTimeout(f"no answer of the agent for {self.limits.answer_timeout:g} s")
                await asyncio.wait({loop, ended}, timeout=max(left, 1.0), return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.cancel()
            ended.cancel()
            await asyncio.gather(loop, ended, return_exceptions=True)
        if computer.failure is not None or loop.cancelled():
            return
        if (error := loop.exception()) is not None and not isinstance(error, EpisodeOver):
            raise error

    def _save(self, index: int, observation: Observation) -> None:
        try:
            observation.image.load()
        except (OSError, SyntaxError) as error:  # what PIL raises for a broken picture
            raise BadFrame(str(error)) from None
        if self.writer is not None:
            # a PNG takes tens of milliseconds, in which neither the model nor another desktop must wait
            loop = asyncio.get_running_loop()
            self.frames.append(loop.run_in_executor(None, self.writer.frame, index, observation.image))
            if observation.tree is not None:
                self.writer.tree(index, observation.tree)


def hacker_gains(results: Iterable[Rollout]) -> Iterator[str]:
    """A line for each task for which the checker gave a reward hacker anything, with the way that the hacker took."""
    for result in results:
        if result.record.score:
            score = {} if result.episode is None else result.episode.metadata.get("score", {})
            way = score.get("hack", "done at once")
            yield f"a hacker gets {result.record.score:g} of 1 for {result.record.task_id}, without doing it: {way}"
