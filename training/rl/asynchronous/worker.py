"""The process that plays rollouts while the training trains: `python -m training.rl.asynchronous.worker FD`.

It has a model of its own, takes new weights between two answers, and plays what is ordered, `limits.concurrency`
rollouts at once. FD is one end of a pipe to the training. When the other end closes, however the training ended, the
worker breaks its rollouts off, closes its desktops and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from eval.agents.base import Agent
from eval.agents.batcher import Batcher
from eval.config import ConfigError
from eval.desktop import Desktop
from training.rl.asynchronous.messages import (
    GroupsWithdrawn,
    NewWeights,
    RolloutBegan,
    RolloutEnded,
    RolloutOrder,
    WorkerFailed,
)
from training.rl.config import RlConfig
from training.rl.rollouts.play import PolicyFailed, first_error, try_rollout
from training.rl.rollouts.waiting_times import WaitingClock

PATIENCE: Final = 30.0  # seconds in which desktops are closed after the training is gone


class RolloutWorker:
    """Plays rollouts until the link closes.

    policy  an agent that keeps what it samples; `follow(version, file)` gives it the weights of its next answers
    link    to the training
    """

    def __init__(self, policy: Any, make_desktop: Callable[[], Desktop], config: RlConfig, link: Connection) -> None:
        self.policy = policy
        self.make_desktop = make_desktop
        self.config = config
        self.link = link
        self.clock = WaitingClock()
        self.version = -1  # the newest weights that were announced: the next answer is of no older ones
        self.withdrawn: set[int] = set()
        self.playing: dict[int, set[asyncio.Task[Any]]] = defaultdict(set)
        self.outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self) -> None:
        sender = threading.Thread(target=self._send, daemon=True)  # the training reads only between two updates
        sender.start()
        failed = None
        try:
            asyncio.run(self._run())
        except BaseExceptionGroup as several:
            error = first_error(several)
            if not isinstance(error, ConfigError | PolicyFailed):
                raise
            failed = WorkerFailed(str(error), wrong=isinstance(error, ConfigError))
        if failed is not None:
            self.outbox.put(failed)
        self.outbox.put(None)
        sender.join()

    def _send(self) -> None:
        while (news := self.outbox.get()) is not None:
            with contextlib.suppress(OSError):  # the training is gone: what is read next says so
                self.link.send(news)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        orders: asyncio.Queue[RolloutOrder] = asyncio.Queue()
        over = asyncio.Event()

        def read() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has failed
                while True:
                    try:
                        news = self.link.recv()
                    except (EOFError, OSError):
                        loop.call_soon_threadsafe(over.set)
                        return
                    loop.call_soon_threadsafe(self._take, news, orders)

        threading.Thread(target=read, daemon=True).start()
        agent: Agent = self.policy
        seats = self.config.limits.concurrency
        async with Batcher(agent, seats) as batcher, asyncio.TaskGroup() as group:
            running = [group.create_task(self._seat(batcher, orders, number)) for number in range(seats)]
            await over.wait()
            for each in running:
                each.cancel()

    def _take(self, news: Any, orders: asyncio.Queue[RolloutOrder]) -> None:
        match news:
            case RolloutOrder():
                orders.put_nowait(news)
            case NewWeights():
                self.version = news.version
                self.policy.follow(news.version, news.file)
            case GroupsWithdrawn():
                self.withdrawn.update(news.groups)
                for number in news.groups:
                    for each in self.playing[number]:
                        each.cancel()

    async def _seat(self, batcher: Batcher, orders: asyncio.Queue[RolloutOrder], number: int) -> None:
        while True:
            order = await orders.get()
            if order.group in self.withdrawn:
                continue
            self.outbox.put(RolloutBegan(order.group, order.member, self.version))
            playing = asyncio.create_task(
                try_rollout(
                    batcher,
                    number,
                    order.seed,
                    self.make_desktop,
                    order.task,
                    self.config,
                    order.member,
                    order.turns,
                    self.clock,
                )
            )
            self.playing[order.group].add(playing)
            try:
                await asyncio.wait({playing})
            finally:  # cancelled with the worker, or withdrawn
                self.playing[order.group].discard(playing)
                if not playing.done():
                    playing.cancel()
                    await asyncio.wait({playing})
            if not playing.cancelled():
                result, retried = playing.result()
                self.outbox.put(RolloutEnded(order.group, order.member, result, retried))
                self.outbox.put(self.clock.read())


def _leave_later() -> None:
    time.sleep(PATIENCE)
    os._exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    (number,) = sys.argv[1:] if argv is None else argv
    link = Connection(int(number))
    for each in (signal.SIGTERM, signal.SIGINT):  # they reach the training, too, which closes the link
        signal.signal(each, signal.SIG_IGN)
    config, folder = link.recv()
    assert isinstance(config, RlConfig)
    policy: Any = None
    try:
        from training.rl.asynchronous.worker_policy import make_worker_policy

        policy, make_desktop = make_worker_policy(config, folder)
        RolloutWorker(policy, make_desktop, config, link).run()
        shutil.rmtree(Path(folder), ignore_errors=True)  # where SIGKILL ended the training
    except ConfigError as error:
        with contextlib.suppress(OSError):
            link.send(WorkerFailed(str(error), wrong=True))
        return 78
    finally:
        threading.Thread(target=_leave_later, daemon=True).start()
        if hasattr(policy, "close"):
            policy.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
