"""Sessions: what a client of any protocol does on a desktop, as an episode of the rollout.

An episode is a `TaskRun` whose agent is the client: limits, records, frames, judgement and failures are the rollout's,
and a score is that of `eval.run` for the same answers. Each session has one episode at a time, on a desktop of its own.
A client that goes away before the end gives its desktop back; its episode is `infra`, and never a score.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from eval.agents.base import Decision
from eval.agents.computer import Computer, EpisodeOver
from eval.desktop import ActionRefused, BrokenByAgent, InfraError, Observation, Task
from eval.environments.registry import written_options
from eval.episodes import ToolCall, jsonl
from eval.records.task_record import EPISODES, RECORDS, TaskRecord, end_of, episode_id
from eval.rollout.limits import scoring_rules
from eval.rollout.task_run import Rollout, TaskRun
from eval.serve.choosing import PLAIN, OfferedTasks, RequestRefused
from eval.serve.config import ServeConfig

PLACE_S: Final = 30.0  # seconds that a client waits for a place where all desktops are in use


class ClientGone(InfraError):
    """The client left its episode before the end."""


@dataclass(frozen=True)
class AfterAnswer:
    """What a client sees after an answer.

    told    why something in the answer was not done, or why it was no action; None: all of it was done
    record  of the episode, where the answer ended it
    result  of the tool, where the answer called one
    """

    task: Task
    observation: Observation
    steps: int
    told: str | None = None
    record: TaskRecord | None = None
    result: str | None = None

    @property
    def done(self) -> bool:
        return self.record is not None

    @property
    def words(self) -> str:
        """What became of the answer."""
        return "\n".join(text for text in (self.result, self.told) if text) or f"step {self.steps}"


class RemoteAgent:
    """The client as an agent that runs its own loop: it takes the computer, and leaves it when it goes away."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.computer: asyncio.Future[Computer] = asyncio.get_running_loop().create_future()
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self, computer: Computer) -> None:
        self.computer.set_result(computer)
        raise ClientGone(await self.gone)

    def leave(self, why: str) -> None:
        if not self.gone.done():
            self.gone.set_result(why)


class ClientSessions:
    """All sessions of a server; their episodes and records are in `out`, as those of an evaluation."""

    def __init__(self, config: ServeConfig, out: Path) -> None:
        """Raises ConfigError."""
        config.check()
        self.config = config
        self.out = out
        known = jsonl.read(out / RECORDS, TaskRecord)
        jsonl.write(out / RECORDS, known)  # without a line that was cut off
        plain = [] if config.tasks is not None else plain_tries(out / EPISODES)  # of which there are no records
        self.offered = OfferedTasks(config, known, max(plain, default=-1) + 1)
        self.builder = config.prompt.builder()
        options = dict(config.options)
        if config.tasks is not None:
            options = written_options(config.environment, options)
        lenient, interface = config.prompt.lenient, config.interface
        self.rules = scoring_rules(config.environment, options, config.limits, lenient=lenient, interface=interface)
        self._places = asyncio.Semaphore(config.limits.concurrency)
        self._kept = Counter(end_of(record) for record in known if record.episode)
        self._kept["failed"] += len(plain)
        self.open: set[ClientSession] = set()

    def session(self) -> ClientSession:
        """A new session. Its episode begins with `ClientSession.start`."""
        session = ClientSession(self)
        self.open.add(session)
        return session

    async def close(self) -> None:
        """Ends all sessions."""
        await asyncio.gather(*(session.close("the server ends") for session in list(self.open)))

    async def take_place(self) -> None:
        """Takes a place for a desktop. Raises RequestRefused where none gets free in time."""
        try:
            async with asyncio.timeout(PLACE_S):
                await self._places.acquire()
        except TimeoutError:
            most = self.config.limits.concurrency
            why = f"all {most} desktops are in use (limits.concurrency); try again when an episode has ended"
            raise RequestRefused("full", why) from None

    def give_place(self) -> None:
        """Gives a place back."""
        self._places.release()

    async def play(self, agent: RemoteAgent, task: Task) -> Rollout:
        """The client's episode, in a place that was taken. A desktop that cannot be made ready is tried again, as in an
        evaluation; what fails after the client saw it is not."""
        limits = self.config.limits
        try:
            for attempt in range(1, limits.attempts + 1):
                rollout = await self._run(agent, task).attempts()
                if rollout.record.outcome != "infra" or agent.computer.done() or attempt == limits.attempts:
                    break
                await asyncio.sleep(limits.backoff * 2 ** (attempt - 1))
        except asyncio.CancelledError:  # nobody saw anything of it
            shutil.rmtree(self.out / EPISODES / episode_id(task), ignore_errors=True)
            raise
        finally:
            self.give_place()
        folder = rollout.record.episode
        episode = folder if self._keeps(rollout.record) else None
        record = msgspec.structs.replace(rollout.record, attempts=attempt, episode=episode)
        if self.config.tasks is not None:
            jsonl.append(self.out / RECORDS, [record])
        if folder is not None and episode is None:
            await asyncio.to_thread(shutil.rmtree, self.out / folder, ignore_errors=True)
        return msgspec.structs.replace(rollout, record=record)

    def _keeps(self, record: TaskRecord) -> bool:
        """Whether the folder of an episode that has ended is kept, as one more of its end."""
        end, most = end_of(record), self.config.keep_episodes
        kept = record.episode is not None and (most is None or self._kept[end] < most)
        self._kept[end] += kept
        return kept

    def _run(self, agent: RemoteAgent, task: Task) -> TaskRun:
        config = self.config
        once = msgspec.structs.replace(config.limits, attempts=1)
        folder = self.out / EPISODES / episode_id(task)
        told = (once, folder, agent.name, config.benchmark, config.environment, config.version, self.rules)
        judge = config.tasks is not None
        return TaskRun(agent, config.desktop, task, *told, interface=config.interface, judge=judge)


def plain_tries(episodes: Path) -> list[int]:
    """The numbers of the episodes on plain desktops in a folder."""
    first = re.escape(episode_id(PLAIN))
    found = [re.fullmatch(rf"{first}(?:\.(\d+))?", path.name) for path in episodes.glob("*")]
    return [int(name[1] or 0) for name in found if name]


class ClientSession:
    """One client's: an episode at a time. Its calls come one after the other; `close` may come at any moment."""

    def __init__(self, sessions: ClientSessions) -> None:
        self.sessions = sessions
        self._turn = asyncio.Lock()
        self._agent: RemoteAgent | None = None
        self._running: asyncio.Task[Rollout] | None = None

    @property
    def active(self) -> bool:
        """Whether an episode was begun and has not ended."""
        return self._running is not None and not self._running.done()

    @property
    def begun(self) -> bool:
        """Whether an episode was begun, whatever became of it."""
        return self._running is not None

    async def start(self, task_id: str | None = None, seed: int | None = None, *, once: bool = False) -> AfterAnswer:
        """Begins an episode; one that goes on is left, or goes on where a session has one (`once`). Raises
        RequestRefused, and InfraError where no desktop could be made ready."""
        async with self._turn:
            if once and self.begun:
                return await self._seen(await self._computer())
            await self._leave("the client began another episode")
            await self.sessions.take_place()
            try:
                task = self.sessions.offered.take(task_id, seed)
            except RequestRefused:
                self.sessions.give_place()
                raise
            agent = self._agent = RemoteAgent(self.sessions.config.client)
            running = self._running = asyncio.create_task(self.sessions.play(agent, task))
            either: set[asyncio.Future[Any]] = {agent.computer, running}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not agent.computer.done():
                record = await self._record(running)
                raise InfraError(record.error or "the episode was over before it began")
            return await self._seen(agent.computer.result())

    async def answer(self, decision: Decision) -> AfterAnswer:
        """Records an answer and does its actions. Raises RequestRefused without an episode, InfraError where it failed,
        which is never a score."""
        async with self._turn:
            computer = await self._computer()
            with suppress(EpisodeOver, InfraError, BrokenByAgent):  # the episode tells it
                await computer.answer(decision)
            return await self._seen(computer)

    async def call(self, decision: Decision, call: ToolCall) -> AfterAnswer:
        """Records an answer that calls a tool of the desktop, and does the call. Raises what `answer` raises."""
        async with self._turn:
            computer = await self._computer()
            result = None
            with suppress(EpisodeOver, InfraError, BrokenByAgent, ActionRefused):
                computer.begin(decision)
                result = await computer.call(call)
            if len(computer.steps) >= computer.max_steps:
                computer.ended.set()
            return replace(await self._seen(computer), result=result)

    async def look(self) -> AfterAnswer:
        """The present screen; nothing is done. Raises what `answer` raises."""
        async with self._turn:
            return await self._seen(await self._computer())

    async def record(self) -> TaskRecord | None:
        """The record of the last episode; None while one goes on, and before the first."""
        return None if self._running is None or self.active else await self._record(self._running)

    async def close(self, why: str = "the client went away") -> None:
        """Ends the session, whatever it does: its desktop is given back."""
        self.sessions.open.discard(self)
        await self._leave(why)

    async def _computer(self) -> Computer:
        """The computer of the episode that goes on. Raises RequestRefused, and InfraError where it failed meanwhile."""
        if self._agent is None or self._running is None or not self._agent.computer.done():
            raise RequestRefused("no_episode", "there is no episode yet: begin one first")
        if self._running.done():
            if (failed := await self._record(self._running)).outcome != "scored":
                raise InfraError(failed.error or "the episode failed")
            raise RequestRefused("no_episode", "the episode has ended: begin another one")
        return self._agent.computer.result()

    async def _seen(self, computer: Computer) -> AfterAnswer:
        """What the client sees now. Raises InfraError where the episode failed."""
        assert self._running is not None, "there is an episode"
        record = None
        if computer.ended.is_set():
            record = await self._record(self._running)
            if record.outcome != "scored":
                raise InfraError(record.error or "the episode failed")
        return AfterAnswer(computer.task, computer.observation, len(computer.steps), computer.undone, record)

    async def _record(self, running: asyncio.Task[Rollout]) -> TaskRecord:
        """The record of the episode, as soon as it has ended. Raises InfraError where it could not be kept."""
        try:
            return (await asyncio.shield(running)).record
        except OSError as error:
            raise InfraError(f"the episode could not be recorded: {error}") from error

    async def _leave(self, why: str) -> None:
        """Ends the episode that goes on, if there is one, and waits until its desktop is closed."""
        if self._agent is None or self._running is None or self._running.done():
            return
        self._agent.leave(why)
        if not self._agent.computer.done():  # the desktop is not ready yet, and nobody saw it
            self._running.cancel()
        await asyncio.wait({self._running})


T = TypeVar("T")
WAITING: Final = 64  # messages that wait for their turn; a client that sends more is not one of ours


async def serve_stream(
    messages: AsyncIterator[T], handle: Callable[[T], Awaitable[None]], session: ClientSession, patience: float = 0.0
) -> None:
    """Handles the messages one after the other. When they end the session is closed, also in the middle of an answer.

    patience  seconds in which the messages that still wait are handled after the end
    """
    queue: asyncio.Queue[T | None] = asyncio.Queue(WAITING)

    async def work() -> None:
        while (message := await queue.get()) is not None:
            await handle(message)

    worker = asyncio.create_task(work())
    try:
        async for message in messages:
            if worker.done() or queue.full():
                break
            queue.put_nowait(message)
        else:
            if patience:
                await asyncio.wait({asyncio.create_task(queue.put(None)), worker}, timeout=patience)
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await session.close()
    error = None if worker.cancelled() else worker.exception()
    if error is not None and not isinstance(error, ConnectionError):  # that: the client is gone before its answer
        raise error
