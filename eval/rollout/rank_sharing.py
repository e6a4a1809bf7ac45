"""Shares the tasks of one evaluation between its ranks: rank 0 hands them out, and alone writes the results.

A rank has as many connections to rank 0 as episodes at once, each with one task at a time. A connection that breaks, or
that is silent for LOST seconds, gives its task back: another gets it, and the first record of a task counts. So no task
is lost and none has two records; a task is judged a second time only where its worker was cut off in the middle.

One message is a line of JSON. From a worker: hello, take, alive, done; to it: ok, later, over, refused, task, taken.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.config import ConfigError
from eval.desktop import InfraError, Task
from eval.records.earlier_results import content_of
from eval.records.task_record import ENDS, End, TaskRecord, end_of

LOST: Final = 180.0  # seconds of silence after which a worker counts as gone; a model on CPU may hold its loop for some
BEAT: Final = 10.0  # seconds between its signs of life
LOADING: Final = 1800.0  # seconds that rank 0 may need before it listens: it loads models meanwhile
AGAIN: Final = 0.5  # seconds before a worker connects again
LINE: Final = 256 << 20  # bytes of a message: the pictures of one episode
FILE: Final = re.compile(r"[A-Za-z0-9_][\w.-]*")  # of an episode's folder, which is flat


class LeaderGone(InfraError):
    """Rank 0 does not answer any more."""


class WorkQueue:
    """The tasks by number, in the order in which they are begun, each given to one worker at a time."""

    def __init__(self, order: Iterable[int]) -> None:
        self._waiting = list(order)
        self._held: set[int] = set()
        self._done: set[int] = set()
        self._news = asyncio.Condition()

    async def take(self) -> int | None:
        """The next task; None once all are done. Waits while all others are held, as one may come back."""
        async with self._news:
            await self._news.wait_for(lambda: self._waiting or not self._held)
            if not self._waiting:
                return None
            number = self._waiting.pop(0)
            self._held.add(number)
            return number

    async def give_back(self, number: int) -> None:
        """Makes a task the next one, unless it is done meanwhile."""
        async with self._news:
            self._held.discard(number)
            if number not in self._done:
                self._waiting.insert(0, number)
            self._news.notify_all()

    async def finish(self, number: int) -> bool:
        """Whether this is the first record of the task, which counts."""
        async with self._news:
            first = number not in self._done
            self._done.add(number)
            self._held.discard(number)
            if number in self._waiting:  # its first worker was taken for gone, and comes back with the record
                self._waiting.remove(number)
            self._news.notify_all()
            return first


@dataclass
class Ranks:
    """This process among those of one evaluation.

    rank   0 leads
    size   how many there are
    host, port  where rank 0 listens
    phase  counts rollouts: the agent, then each baseline; `last` is the last of them
    """

    rank: int
    size: int
    host: str
    port: int
    phase: int = 0
    last: int = 0
    told: set[str] = field(default_factory=set)  # ranks that know that the phase is over

    @property
    def leads(self) -> bool:
        return self.rank == 0


def ranks_here() -> Ranks | None:
    """As the runtime tells a leading role of several processes (docs/reference/runtime.md); None: this one is alone.

    Raises ConfigError for numbers that are none.
    """
    if int(os.environ.get("SLIPWAY_NODES") or 1) < 2 or "MASTER_ADDR" not in os.environ:
        return None
    try:
        rank, size, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    except (KeyError, ValueError) as error:
        raise ConfigError(f"RANK, WORLD_SIZE and MASTER_PORT must be numbers: {error}") from None
    return Ranks(rank, size, os.environ["MASTER_ADDR"], port)


def digest_of(tasks: Sequence[Task], agent: str) -> str:
    """What the ranks of one evaluation must agree on: the tasks in their order, with their judges, programs and
    desktops, and who works on them."""
    named = (f"{content_of(each)}.{each.trial} {sorted(each.identity.items())}" for each in tasks)
    told = " ".join([agent, os.environ.get("SLIPWAY_RUN", ""), *named])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@contextlib.asynccontextmanager
async def serving(
    ranks: Ranks,
    queue: WorkQueue,
    digest: str,
    keep: Callable[[int, TaskRecord, dict[str, bytes]], Awaitable[None]],
    wanted: Callable[[int], Sequence[End]] = lambda number: ENDS,
) -> AsyncIterator[None]:
    """Hands out the tasks of this phase while the block runs, and tells every rank when they are over.

    keep    takes the first record of a task with the files of its episode
    wanted  the ends of a task with which these files are sent
    """
    open_: set[asyncio.Task[None]] = set()
    phase = ranks.phase  # a connection that this phase has taken may be read when the next one has begun

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_.add(task)
        try:
            await _serve(ranks, phase, queue, digest, keep, wanted, reader, writer)
        except (OSError, asyncio.IncompleteReadError, msgspec.MsgspecError, TimeoutError, ValueError):
            pass  # what it held was given back
        finally:
            open_.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, _listening(ranks.host), ranks.port, limit=LINE)
    async with server:
        try:
            yield
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOST):  # a rank that comes later finds nobody, and ends
                    while len(ranks.told) < ranks.size - 1 or open_:
                        await asyncio.sleep(0.05)
        finally:
            for task in list(open_):
                task.cancel()
    ranks.told.clear()
    ranks.phase += 1


def _listening(host: str) -> str | None:
    """One machine's ranks stay on its loopback; others listen on every interface."""
    return host if host in ("127.0.0.1", "localhost", "::1") else None


class _Hello(msgspec.Struct):
    """The first message of a worker."""

    rank: int
    phase: int
    digest: str


class _Done(msgspec.Struct):
    """A task's record, and the files of its episode: in base64, as msgspec writes bytes."""

    number: int
    record: TaskRecord
    files: dict[str, bytes]


async def _serve(
    ranks: Ranks,
    phase: int,
    queue: WorkQueue,
    digest: str,
    keep: Callable[[int, TaskRecord, dict[str, bytes]], Awaitable[None]],
    wanted: Callable[[int], Sequence[End]],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """One connection of a worker."""
    hello = msgspec.convert(await _read(reader), _Hello)
    if hello.phase != phase:
        return await _write(writer, {"say": "over" if hello.phase < phase else "later"})
    if hello.digest != digest:
        return await _write(writer, {"say": "refused", "why": "it has other tasks, another agent or is of another run"})
    await _write(writer, {"say": "ok"})
    held: int | None = None
    try:
        while True:
            message = await _read(reader)
            if message.get("say") == "take":
                taking = asyncio.create_task(queue.take())
                try:
                    await _while_alive(reader, taking)
                finally:  # a task that was taken for a worker that is gone goes back below
                    taking.cancel()
                    await asyncio.wait({taking})
                    held = None if taking.cancelled() else taking.result()
                if held is None:
                    ranks.told.add(str(hello.rank))
                    return await _write(writer, {"say": "over"})
                await _write(writer, {"say": "task", "number": held, "wanted": list(wanted(held))})
            elif message.get("say") == "done":
                done = msgspec.convert(message, _Done)
                if not all(FILE.fullmatch(name) for name in done.files):
                    raise ValueError("a file with an odd name")
                first = await queue.finish(done.number)
                if held == done.number:
                    held = None
                if first:
                    await keep(done.number, done.record, done.files)
                await _write(writer, {"say": "taken", "first": first})
            elif message.get("say") != "alive":
                raise ValueError("a message that no worker sends")
    finally:
        if held is not None:
            await queue.give_back(held)


async def _while_alive(reader: asyncio.StreamReader, taking: asyncio.Task[int | None]) -> int | None:
    """The task, while the worker that waits for it gives signs of life."""
    while not taking.done():
        reading = asyncio.create_task(_read(reader))
        await asyncio.wait({taking, reading}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        else:
            reading.result()
    return taking.result()


async def _read(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next message. Raises TimeoutError after LOST seconds, IncompleteReadError at the end, ValueError for what is
    none."""
    async with asyncio.timeout(LOST):
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            raise ValueError(str(error)) from None
    message: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    return message


async def _write(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(msgspec.json.encode(message) + b"\n")
    async with asyncio.timeout(LOST):
        await writer.drain()


async def helping(ranks: Ranks, slots: int, digest: str, work: Callable[[int, Path], Awaitable[TaskRecord]]) -> None:
    """Works for rank 0 until this phase is over, on so many tasks at once.

    work  runs a task into the folder of its episode, and gives its record

    Raises ConfigError where rank 0 has other tasks, and LeaderGone.
    """
    async with asyncio.TaskGroup() as group:
        for _ in range(slots):
            group.create_task(_Slot(ranks, digest, work).run())
    ranks.phase += 1


class _Slot:
    """One connection to rank 0, made again where it breaks. A record that was not taken yet is told again."""

    def __init__(self, ranks: Ranks, digest: str, work: Callable[[int, Path], Awaitable[TaskRecord]]) -> None:
        self.ranks = ranks
        self.hello = {"say": "hello", "rank": ranks.rank, "phase": ranks.phase, "digest": digest}
        self.work = work
        self.made: dict[str, Any] | None = None
        self.heard = False

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        since = clock()
        while True:
            try:
                reader, writer = await asyncio.open_connection(self.ranks.host, self.ranks.port, limit=LINE)
            except OSError as error:
                last = self.ranks.phase == self.ranks.last
                if clock() - since > (BEAT if self.heard and last else LOADING):
                    if self.heard and last and self.made is None:
                        return  # rank 0 has all it needs, and has ended
                    raise LeaderGone(f"rank 0 at {self.ranks.host}:{self.ranks.port}: {error}") from None
                await asyncio.sleep(AGAIN)
                continue
            beating = asyncio.create_task(_beat(writer))
            try:
                if await self._work(reader, writer):
                    return
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                pass  # the next connection goes on
            finally:
                beating.cancel()
                writer.close()
            since = clock()
            await asyncio.sleep(AGAIN)

    async def _work(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the phase is over. Raises ConfigError."""
        await _write(writer, self.hello)
        answer = await _read(reader)
        if answer["say"] == "refused":
            raise ConfigError(f"rank {self.ranks.rank}: rank 0 does not take it: {answer['why']}")
        if answer["say"] != "ok":
            return bool(answer["say"] == "over")
        self.heard = True
        while True:
            if self.made is not None:
                await _write(writer, self.made)
                await _read(reader)
                self.made = None
            await _write(writer, {"say": "take"})
            answer = await _waited(reader)
            if answer["say"] == "over":
                return True
            with tempfile.TemporaryDirectory() as folder:
                record = await self.work(answer["number"], Path(folder) / "episode")
                told = msgspec.to_builtins(record)
                files = _files(Path(folder)) if end_of(record) in answer["wanted"] else {}
                self.made = {"say": "done", "number": answer["number"], "record": told, "files": files}


async def _beat(writer: asyncio.StreamWriter) -> None:
    while True:
        await asyncio.sleep(BEAT)
        writer.write(msgspec.json.encode({"say": "alive"}) + b"\n")


async def _waited(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The answer to `take`, however long others hold the last tasks."""
    message: dict[str, Any] = msgspec.json.decode(await reader.readuntil(b"\n"), type=dict[str, Any])
    return message


def _files(folder: Path) -> dict[str, str]:
    kept = folder / "episode"
    files = sorted(kept.iterdir()) if kept.is_dir() else []
    return {each.name: base64.b64encode(each.read_bytes()).decode() for each in files if each.is_file()}
