"""Many sessions: resets one after another, sessions side by side, and sessions of a user without rights."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

import pytest

import eval as package
from eval.desktops.keeping import kernel
from eval.desktops.keeping.keepers import ForkServer
from eval.desktops.session import DesktopSession
from tests.support.desktops import descriptors, left, memory_mb, run
from tests.support.needs import need, need_root
from tests.support.waiting import until

DEBIAN_PYTHON = "/usr/bin/python3"


def tell(keeper: TextIO, order: dict[str, Any]) -> None:
    keeper.write(json.dumps(order) + "\n")
    keeper.flush()


def used_by(session: DesktopSession) -> float:
    """The memory of all processes of a session in MB, shared pages counted by share (PSS)."""
    keeper = session.processes["keeper"]
    return memory_mb([keeper, *kernel.children(keeper)])


def resets(count: int, folder: Path) -> list[float]:
    """The times of `count` resets in seconds, each until the program's window is there again; nothing piles up."""
    times = []

    async def work() -> None:
        async with await DesktopSession.start() as session:
            opened = {}
            for number in range(count):
                started = time.perf_counter()
                await session.reset()
                await session.run(["galculator"])
                await session.windows(1)
                times.append(time.perf_counter() - started)
                if number in (4, count - 1):
                    mine = session.place.xauthority.parent.name
                    assert [line for line in left(folder) if mine not in line] == []
                    opened[number] = descriptors()
            assert opened[count - 1] == opened[4]

    run(work())
    until(lambda: not left(folder), lambda: left(folder))
    return times


def test_eight_resets_leave_nothing(folder: Path) -> None:
    assert len(resets(8, folder)) == 8


@pytest.mark.nightly
def test_five_hundred_resets_leave_nothing(folder: Path) -> None:
    times = resets(500, folder)
    print(f"\n500 resets: median {statistics.median(times):.2f} s, slowest {max(times):.2f} s")


async def side_by_side(count: int) -> list[float]:
    """`count` sessions at once, each with a program and its window; the memory of each in MB."""
    sessions = await asyncio.gather(*(DesktopSession.start() for _ in range(count)))
    try:
        for session in sessions:
            await session.run(["galculator"])
        await asyncio.gather(*(session.windows(1) for session in sessions))
        assert len({session.place.display for session in sessions}) == count
        for session in sessions:
            session.check()
        return [used_by(session) for session in sessions]
    finally:
        await asyncio.gather(*(session.stop() for session in sessions))


def test_sessions_start_side_by_side(folder: Path) -> None:
    assert len(run(side_by_side(3))) == 3
    until(lambda: not left(folder), lambda: left(folder))


@pytest.mark.nightly
def test_sixteen_desktops_at_once(folder: Path) -> None:
    started = time.perf_counter()
    memory = run(side_by_side(16))
    until(lambda: not left(folder), lambda: left(folder))
    took = time.perf_counter() - started
    print(f"\n16 desktops: {sum(memory):.0f} MB together (PSS), {statistics.median(memory):.0f} MB each, {took:.1f} s")


@pytest.mark.parametrize("user", [pytest.param(65534, id="nobody"), pytest.param(64321, id="without a name")])
def test_a_user_without_rights_has_desktops(folder: Path, user: int) -> None:
    """The keeper as another user, without this user's rights and without control groups. Docker's jobs run as a number
    that the image has no name for, and D-Bus refuses a user without one."""
    need_root()  # for who is not root the other tests show it
    need("debian-python")  # this Python may lie in root's home
    source = Path(package.__file__).parent
    (folder / "code" / "eval").mkdir(parents=True)
    shutil.copy(source / "__init__.py", folder / "code" / "eval")
    shutil.copytree(source / "desktops", folder / "code" / "eval" / "desktops")
    subprocess.run(["chmod", "-R", "a+rX", str(folder / "code")], check=True)

    def command(module: str, *arguments: str) -> list[str]:
        code = f"import sys; sys.path.append('{folder}/code'); from eval.desktops.keeping.{module} import main; main()"
        ids = [f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all"]
        return ["setpriv", *ids, DEBIAN_PYTHON, "-I", "-S", "-c", code, *arguments]

    probed = subprocess.run(command("probe"), capture_output=True, text=True, check=True, cwd="/", timeout=120)
    machine = json.loads(probed.stdout)
    assert not machine["root"]
    assert any("a user of its own" in line for line in machine["missing"])
    own = folder / "session"
    own.mkdir()
    os.chown(own, user, user)
    order = {"folder": str(own), "namespaces": machine["namespaces"]}
    server = ForkServer(command("fork_server"))
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as trouble:
        with theirs:
            given = [theirs.fileno(), trouble.fileno(), trouble.fileno()]
            assert server.send(json.dumps(order).encode(), given)
        keeper = server.answer()["keeper"]
        with ours.makefile("r") as told, ours.makefile("w") as asked:
            first = json.loads(told.readline())
            assert "ready" in first, first
            tell(asked, {"start": 1, "argv": ["galculator"], "environ": {}})
            while json.loads(told.readline()) != {"windows": 1}:
                pass
            names = ["dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.DBus", "/"]
            tell(asked, {"start": 2, "argv": [*names, "org.freedesktop.DBus.ListNames"], "environ": {}})
            while (line := json.loads(told.readline())).get("ended") != 2:
                pass
            assert line["status"] == 0, "the session bus does not answer"
            ours.shutdown(socket.SHUT_WR)
            assert json.loads(told.readlines()[-1]) == {"stopped": True}
    until(lambda: not Path(f"/proc/{keeper}").exists())
    server.end()
    assert not own.exists() or not list(own.iterdir())
