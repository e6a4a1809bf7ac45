"""Collects the requests of many episodes into one call of the agent, and lets such an agent work as a looping one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType

from eval.agents.base import Agent, Decision, History, StreamingAgent
from eval.agents.computer import Computer, LoopingAgent
from eval.desktop import Observation

LINGER = 0.02  # seconds to wait for the episodes that are still busy on their desktops


class Batcher:
    """Calls the agent when every open episode waits for it, or as many as it takes in one call (its `batch_size`, where
    it has one), or when one has waited for `linger` seconds.

    linger  None: always waits for every open episode and asks for all at once, so that no clock decides what a batch
            holds

    An exception of the agent goes to every episode of that batch that has no answer yet. Of an agent that gives its
    answers one by one (`StreamingAgent`), each is handed on when it is ready. Use as an async context manager.
    """

    def __init__(self, agent: Agent, limit: int, linger: float | None = LINGER) -> None:
        self.agent = agent
        self.streams = isinstance(agent, StreamingAgent)  # asked once: of a protocol it is slow
        self.linger = linger
        self.limit = limit if linger is None else min(limit, getattr(agent, "batch_size", limit))
        self.open = 0  # episodes that may ask
        self._waiting: list[tuple[Observation, History, asyncio.Future[Decision]]] = []
        self._since = 0.0  # when the first of them came
        self._news = asyncio.Event()
        self._free = asyncio.Semaphore(agent.parallel)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Batcher:
        self._task = asyncio.create_task(self._serve())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def enter(self) -> None:
        """Counts an episode that will ask."""
        self.open += 1

    def leave(self) -> None:
        """An episode that asks no more is not waited for."""
        self.open -= 1
        self._news.set()

    async def ask(self, observation: Observation, history: History) -> Decision:
        """This episode's decision."""
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self._since = asyncio.get_running_loop().time()
        self._waiting.append((observation, history, answer))
        self._news.set()
        return await answer

    async def _gather(self) -> None:
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        until = None if self.linger is None else self._since + self.linger
        while len(self._waiting) < min(self.open, self.limit):
            self._news.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._news.wait()
            except TimeoutError:
                return

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as calls:
            while True:
                await self._free.acquire()
                await self._gather()
                batch, self._waiting = self._waiting[: self.limit], self._waiting[self.limit :]
                calls.create_task(self._call(batch))

    async def _call(self, batch: list[tuple[Observation, History, asyncio.Future[Decision]]]) -> None:
        observations, histories = [item[0] for item in batch], [item[1] for item in batch]
        try:
            if self.streams:
                assert isinstance(self.agent, StreamingAgent)
                async for number, decision in self.agent.each(observations, histories):
                    if not (answer := batch[number][2]).done():
                        answer.set_result(decision)
                if missing := sum(not answer.done() for *_, answer in batch):
                    raise RuntimeError(f"{self.agent.name} gave no decision for {missing} of {len(batch)} observations")
                return
            decisions = await self.agent.act(observations, histories)
            if len(decisions) != len(batch):
                raise RuntimeError(f"{self.agent.name} gave {len(decisions)} decisions for {len(batch)} observations")
        except Exception as error:
            for *_, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
        else:
            for (*_, answer), decision in zip(batch, decisions, strict=True):
                if not answer.done():  # done: the episode was cancelled meanwhile
                    answer.set_result(decision)
        finally:
            self._free.release()


class Stepping:
    """An agent that decides for many episodes at once, as a looping agent (`eval.agents.computer.LoopingAgent`)."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        self.name = batcher.agent.name

    async def run(self, computer: Computer) -> None:
        self.batcher.enter()
        try:
            while not computer.ended.is_set():
                await computer.answer(await self.batcher.ask(computer.observation, computer.history()))
        finally:
            self.batcher.leave()


@asynccontextmanager
async def looping_of(agent: Agent | LoopingAgent, limit: int) -> AsyncIterator[LoopingAgent]:
    """The agent as one that loops: one that only acts gets a loop around it, and one batch for many episodes."""
    if isinstance(agent, LoopingAgent):
        yield agent
    else:
        async with Batcher(agent, limit) as batcher:
            yield Stepping(batcher)
