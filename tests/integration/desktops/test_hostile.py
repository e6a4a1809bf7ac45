"""A hostile agent on a desktop: what it breaks is its own, never the server, another desktop or the machine.

These tests attack. Each runs only after probes have proved that the desktop's programs are not root, have a PID
namespace of their own, and that limits on processes and memory hold here; and each looks at that once more from inside
its own desktop before it attacks. Elsewhere they are skipped by name.
"""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from eval.desktop import BrokenByAgent
from eval.desktops.reading import read_archive, read_file
from eval.desktops.session import DesktopOptions, DesktopSession
from tests.support.desktops import left, need_isolation, output, run
from tests.support.waiting import until

SMALL = DesktopOptions(screen=(1024, 768), processes=64, memory=256 << 20, home_size=8 << 20, temporary_size=16 << 20)


@pytest.fixture(autouse=True)
def _isolated(folder: Path) -> None:
    need_isolation()


async def proved(session: DesktopSession) -> None:
    """Looks from inside: not root, another PID namespace, only its own processes, in groups with limits."""
    assert int(await output(session, "id -u")) >= 1000
    assert await output(session, "readlink /proc/self/ns/pid") != str(Path("/proc/self/ns/pid").readlink())
    assert len((await output(session, "ls -d /proc/[0-9]*")).split()) < 20
    groups = await output(session, "cat /proc/self/cgroup")
    assert groups.count("-guest") >= len(set(session.isolation.cgroups.values()))
    assert await output(session, "grep ^NoNewPrivs /proc/self/status") == "NoNewPrivs:\t1"


async def works(session: DesktopSession, windows: int) -> None:
    """The desktop still serves: a program starts and gets its window."""
    session.check()
    await session.run(["galculator"])
    await session.windows(windows)


def attack(act: Callable[[DesktopSession], Awaitable[None]], folder: Path, still_works: bool = True) -> None:
    """`act` on one of two desktops. The other does not notice; afterwards nothing is left of both."""

    async def work() -> None:
        async with await DesktopSession.start(SMALL) as session, await DesktopSession.start(SMALL) as neighbour:
            await works(neighbour, 1)
            await proved(session)
            await act(session)
            if still_works:
                await works(session, 1)
            await works(neighbour, 2)

    run(work())
    until(lambda: not left(folder), lambda: left(folder))


def test_the_agent_sees_only_its_own_desktop(folder: Path) -> None:
    async def act(session: DesktopSession) -> None:
        own = "bin dev etc home lib lib32 lib64 libx32 proc run sbin tmp usr var"
        assert set((await output(session, "ls -A /")).split()) <= set(own.split())
        assert await output(session, "ls /tmp/.X11-unix") == f"X{session.place.display[1:]}"
        assert await output(session, "ls /tmp | grep -v program-") == Path(folder).name
        assert await output(session, "cat /etc/shadow") == ""
        assert (await output(session, "cat /proc/net/dev")).count(":") == 1  # lo
        assert "Read-only" in await output(session, f"rm -f {folder}/*/bus/session")
        own = ("/home/user", "/tmp", "/dev/shm", "/run/user", "/dev/pts")
        look = "find / -maxdepth 3 -path /proc -prune -o -type d -writable -print 2>/dev/null"
        assert [path for path in (await output(session, look)).split() if not path.startswith(own)] == []
        assert "Operation not permitted" in await output(session, "kill -9 1")

    attack(act, folder)


def test_kill_every_process(folder: Path) -> None:
    async def act(session: DesktopSession) -> None:
        await session.run(["galculator"])
        await session.windows(1)
        await session.run(["sh", "-c", "kill -9 -1"])
        await session.windows(0)

    attack(act, folder)


def test_killall_python(folder: Path) -> None:
    async def act(session: DesktopSession) -> None:
        killer = await session.run(["sh", "-c", "for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done; exit 7"])
        assert await killer.wait() in (7, -9)

    attack(act, folder)


def test_a_fork_bomb(folder: Path) -> None:
    async def act(session: DesktopSession) -> None:
        bomb = await session.run(["sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 1000"])
        group = Path(session.isolation.cgroups["pids"])
        mine = [path for path in group.iterdir() if path.name.startswith(folder.name) and path.name.endswith("-guest")]
        until(lambda: any(not (path / "pids.events").read_text().startswith("max 0") for path in mine))
        assert max(int((path / "pids.current").read_text()) for path in mine) <= SMALL.processes
        assert bomb.status is None or bomb.status
        await session.reset()

    attack(act, folder)


def test_all_of_the_memory(folder: Path) -> None:
    async def act(session: DesktopSession) -> None:
        hog = await session.run(["sh", "-c", "exec tail /dev/zero"])
        assert await hog.wait() == -9

    attack(act, folder)


def test_a_full_home_and_a_full_tmp(folder: Path) -> None:
    async def act(session: DesktopSession) -> None:
        for place in ("$HOME", "/tmp", "/dev/shm", "$XDG_RUNTIME_DIR"):
            filler = await session.run(["sh", "-c", f"cat /dev/zero >{place}/full 2>/dev/null; test -s {place}/full"])
            assert await filler.wait() == 0
        assert sum(path.stat().st_size for path in session.place.home.rglob("*")) <= SMALL.home_size
        clean = await session.run(["sh", "-c", "rm -f $HOME/full /tmp/full /dev/shm/full $XDG_RUNTIME_DIR/full"])
        await clean.wait()

    attack(act, folder)


def test_the_home_is_deleted(folder: Path) -> None:
    async def act(session: DesktopSession) -> None:
        gone = await session.run(["sh", "-c", "rm -rf ~ ~/* ~/.[a-z]* /tmp/* /home /etc/passwd"])
        await gone.wait()
        assert not list(session.place.home.iterdir())
        assert Path("/etc/passwd").exists()

    attack(act, folder)


@pytest.mark.parametrize("how", ["xprop -root -remove AT_SPI_BUS", "openbox --exit", "xkill"])
def test_the_window_manager_and_the_root_window(how: str, folder: Path) -> None:
    async def act(session: DesktopSession) -> None:
        if how == "xkill":
            window = (await output(session, "xprop -root _NET_SUPPORTING_WM_CHECK")).split()[-1]
            await session.run(["xkill", "-id", window])
        else:
            await session.run(how.split())
        if how.startswith("xprop"):
            session.check()
        else:
            assert isinstance(await session.failed(), BrokenByAgent)

    attack(act, folder, still_works=how.startswith("xprop"))


def test_traps_for_the_checker(folder: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(4 << 20))

    async def act(session: DesktopSession) -> None:
        home = session.place.home
        script = (
            "mkfifo fifo; ln -s /etc/passwd link; ln -s / out; mkdir folder; head -c 2M /dev/zero >large; echo 1 >good"
        )
        program = await session.run(["sh", "-c", script])
        assert await program.wait() == 0
        for name in ("fifo", "link", "out/etc/passwd", "folder", "large"):
            with pytest.raises(BrokenByAgent):
                await asyncio.to_thread(read_file, home, name, 1 << 20)
        for name in ("../user/good", "/etc/passwd", ""):
            with pytest.raises(ValueError, match="not a path below"):
                read_file(home, name)
        with pytest.raises(FileNotFoundError):
            read_file(home, "nothing")
        assert read_file(home, "good") == b"1\n"
        with pytest.raises(BrokenByAgent, match="unpacks to more"):
            read_archive(bomb.read_bytes(), 1 << 20)
        with pytest.raises(BrokenByAgent, match="not an archive"):
            read_archive(b"PK\x03\x04 nothing")
        assert read_archive(bomb.read_bytes()) == {"zeros": bytes(4 << 20)}

    attack(act, folder)
