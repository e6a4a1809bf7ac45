"""The queue that ranks share, and rank 0's connections, with workers that go, hang, come back and lie."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.config import ConfigError
from eval.desktop import Task
from eval.records.task_record import TaskRecord
from eval.rollout import rank_sharing
from eval.rollout.rank_sharing import Ranks, WorkQueue, digest_of, helping, ranks_here, serving


def record(number: int, **more: Any) -> TaskRecord:
    return TaskRecord(
        benchmark="b", agent="a", task_id=f"t{number}", seed=0, score=1.0, success=True, outcome="scored", **more
    )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def test_a_task_that_comes_back_is_the_next_one_and_ends_only_with_its_record() -> None:
    async def work() -> None:
        queue = WorkQueue([3, 1, 2])
        assert [await queue.take() for _ in range(3)] == [3, 1, 2]
        waiting = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        await queue.finish(3)
        await queue.finish(2)
        await asyncio.sleep(0.01)
        assert not waiting.done()  # 1 may come back
        await queue.give_back(1)
        assert await waiting == 1
        assert await queue.finish(1) is True
        assert await queue.take() is None

    asyncio.run(work())


def test_the_first_record_counts_whoever_has_the_task_now() -> None:
    async def work() -> None:
        queue = WorkQueue([0])
        assert await queue.take() == 0
        await queue.give_back(0)  # its worker was taken for gone
        assert await queue.finish(0) is True  # and comes back with the record, before another begins
        assert await queue.take() is None
        assert await queue.finish(0) is False
        await queue.give_back(0)
        assert await queue.take() is None

    asyncio.run(work())


class Leader:
    def __init__(self, count: int) -> None:
        self.ranks = Ranks(0, 2, "127.0.0.1", free_port())
        self.queue = WorkQueue(range(count))
        self.kept: dict[int, tuple[TaskRecord, dict[str, bytes]]] = {}

    async def keep(self, number: int, one: TaskRecord, files: dict[str, bytes]) -> None:
        assert number not in self.kept
        self.kept[number] = one, files

    def worker(self) -> Ranks:
        return Ranks(1, 2, "127.0.0.1", self.ranks.port)

    @asynccontextmanager
    async def connection(self, **hello: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ranks.port)
        await send(writer, {"say": "hello", "rank": 1, "phase": 0, "digest": "d", **hello})
        try:
            yield reader, writer
        finally:
            writer.close()


async def send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(msgspec.json.encode(message) + b"\n")
    await writer.drain()


async def heard(reader: asyncio.StreamReader) -> dict[str, Any]:
    message: dict[str, Any] = msgspec.json.decode(await reader.readline())
    return message


def test_a_worker_takes_every_task_and_the_pictures_come_back() -> None:
    leader = Leader(7)

    async def work(number: int, folder: Path) -> TaskRecord:
        folder.mkdir()
        (folder / "000.png").write_bytes(bytes([number]) * 100_000)
        return record(number)

    async def all_() -> None:
        async with serving(leader.ranks, leader.queue, "d", leader.keep):
            await helping(leader.worker(), 3, "d", work)

    asyncio.run(all_())
    assert sorted(leader.kept) == list(range(7))
    for number, (one, files) in leader.kept.items():
        assert one.task_id == f"t{number}"
        assert files == {"000.png": bytes([number]) * 100_000}


def test_a_worker_that_goes_or_hangs_gives_its_task_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_sharing, "LOST", 0.3)
    monkeypatch.setattr(rank_sharing, "BEAT", 0.05)
    leader = Leader(3)

    async def work(number: int, folder: Path) -> TaskRecord:
        return record(number, steps=7)

    async def all_() -> None:
        async with serving(leader.ranks, leader.queue, "d", leader.keep):
            async with leader.connection() as (reader, writer):
                assert (await heard(reader))["say"] == "ok"
                await send(writer, {"say": "take"})
                assert (await heard(reader))["number"] == 0
            async with leader.connection() as (reader, writer):  # stays open and says nothing
                await heard(reader)
                await send(writer, {"say": "take"})
                assert (await heard(reader))["number"] == 0
                await helping(leader.worker(), 1, "d", work)
                assert await reader.read() == b""

    asyncio.run(all_())
    assert sorted(leader.kept) == [0, 1, 2]


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{}",
        b'{"say": "hello", "rank": 1, "digest": "d"}',
        b'{"say": "hello", "rank": 1, "phase": "0", "digest": "d"}',
        b'{"say": "hello", "rank": 1, "phase": 0, "digest": "d"}\n{"number": 0}',
        b'{"say": "hello", "rank": 1, "phase": 0, "digest": "d"}\n{"say": "take"}\n{"say": "done", "number": 0}',
        b'{"say": "hello", "rank": 1, "phase": 0, "digest": "d"}\n{"say": "take"}\n{"say": "done", "number": "x"}',
        b"x" * 5000,
    ],
)
def test_a_connection_that_says_something_else_is_closed_without_a_word_and_holds_nothing(
    line: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rank_sharing, "LINE", 4096)
    leader = Leader(2)
    odd: list[dict[str, Any]] = []

    async def work(number: int, folder: Path) -> TaskRecord:
        return record(number)

    async def all_() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: odd.append(context))
        async with serving(leader.ranks, leader.queue, "d", leader.keep):
            reader, writer = await asyncio.open_connection("127.0.0.1", leader.ranks.port)
            for message in line.split(b"\n"):
                writer.write(message + b"\n")
                with contextlib.suppress(ConnectionError):
                    last = await reader.readline()
            assert last == b""
            writer.close()
            await helping(leader.worker(), 1, "d", work)

    asyncio.run(all_())
    assert (sorted(leader.kept), odd, caplog.records) == ([0, 1], [], [])


def test_a_worker_that_waits_for_others_stays_and_one_that_went_while_it_waited_keeps_nothing() -> None:
    leader = Leader(1)

    async def all_() -> None:
        async with serving(leader.ranks, leader.queue, "d", leader.keep), leader.connection() as (first, says):
            await heard(first)
            await send(says, {"say": "take"})
            assert (await heard(first))["number"] == 0
            async with leader.connection() as (second, its):
                await heard(second)
                await send(its, {"say": "take"})
                await send(its, {"say": "alive"})
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
            done = {"say": "done", "number": 0, "record": msgspec.to_builtins(record(0)), "files": {}}
            await send(says, done)
            assert (await heard(first)) == {"say": "taken", "first": True}
            await send(says, done)
            assert (await heard(first)) == {"say": "taken", "first": False}
            await send(says, {"say": "take"})
            assert (await heard(first)) == {"say": "over"}

    asyncio.run(all_())
    assert list(leader.kept) == [0]


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a/b", ".hidden", ""])
def test_a_file_leaves_no_episode_and_no_record(name: str) -> None:
    leader = Leader(1)

    async def all_() -> None:
        async with serving(leader.ranks, leader.queue, "d", leader.keep):
            async with leader.connection() as (reader, writer):
                await heard(reader)
                await send(writer, {"say": "take"})
                await heard(reader)
                done = {"say": "done", "number": 0, "record": msgspec.to_builtins(record(0)), "files": {name: "eA=="}}
                await send(writer, done)
                assert await reader.read() == b""
            assert await leader.queue.take() == 0  # it came back
            await leader.queue.finish(0)
            leader.ranks.told.add("1")

    asyncio.run(all_())
    assert leader.kept == {}


def test_a_rank_with_other_tasks_is_refused() -> None:
    leader = Leader(1)

    async def work(number: int, folder: Path) -> TaskRecord:
        raise AssertionError

    async def all_() -> None:
        async with serving(leader.ranks, leader.queue, "d", leader.keep):
            try:
                await helping(leader.worker(), 1, "other", work)
            finally:
                leader.ranks.told.add("1")

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(all_())
    assert raised.group_contains(ConfigError, match="rank 1: rank 0 does not take it: it has other tasks")


def test_phases_follow_each_other_and_a_rank_may_come_too_early() -> None:
    """The second agent's worker is there before rank 0 has begun anything."""
    port, seen = free_port(), []

    async def lead() -> None:
        ranks = Ranks(0, 2, "127.0.0.1", port)
        await asyncio.sleep(0.3)
        for phase in range(2):
            leader = Leader(2)
            async with serving(ranks, leader.queue, f"d{phase}", leader.keep):
                await asyncio.sleep(0)
            seen.append(sorted(leader.kept))

    async def follow() -> None:
        ranks = Ranks(1, 2, "127.0.0.1", port, last=1)

        async def work(number: int, folder: Path) -> TaskRecord:
            return record(number)

        for phase in range(2):
            await helping(ranks, 2, f"d{phase}", work)

    async def all_() -> None:
        await asyncio.gather(lead(), follow())

    asyncio.run(all_())
    assert seen == [[0, 1], [0, 1]]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("turns", range(8))
def test_who_connects_while_a_phase_ends_is_told_to_come_again(turns: int) -> None:
    """The connection is taken by the phase that ends, `turns` turns of the loop before, and read when the next one has
    begun: its tasks are others, and the worker was refused for good."""
    hello = {"say": "hello", "rank": 1, "phase": 1, "digest": "d1"}

    async def come() -> bytes:
        leader = Leader(0)
        async with serving(leader.ranks, leader.queue, "d0", leader.keep):
            leader.ranks.told.add("1")
            early = socket.create_connection((leader.ranks.host, leader.ranks.port))
            early.sendall(json.dumps(hello).encode() + b"\n")
            for _ in range(turns):
                await asyncio.sleep(0)
        early.setblocking(False)
        try:
            async with asyncio.timeout(1):
                return await asyncio.get_running_loop().sock_recv(early, 1000)
        except (ConnectionResetError, TimeoutError):  # asyncio may drop it without a word; the worker then tries again
            return b""
        finally:
            early.close()

    assert b"refused" not in asyncio.run(come())
    gc.collect()  # a connection that asyncio dropped


def test_only_a_role_of_several_processes_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLIPWAY_NODES", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert ranks_here() is None
    told = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "RANK": "2", "WORLD_SIZE": "4"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert ranks_here() is None  # as torchrun on one machine tells, for a training that evaluates
    monkeypatch.setenv("SLIPWAY_NODES", "4")
    ranks = ranks_here()
    assert ranks is not None
    assert (ranks.rank, ranks.size, ranks.host, ranks.port, ranks.leads) == (2, 4, "10.0.0.1", 29500, False)
    monkeypatch.setenv("RANK", "x")
    with pytest.raises(ConfigError, match="RANK, WORLD_SIZE and MASTER_PORT must be numbers"):
        ranks_here()


def test_ranks_agree_on_tasks_agent_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [Task("a", "x"), Task("b", "x")]
    same = digest_of(tasks, "me")
    assert digest_of(tasks[::-1], "me") != same
    assert digest_of(tasks, "you") != same
    monkeypatch.setenv("SLIPWAY_RUN", "other")
    assert digest_of(tasks, "me") != same
