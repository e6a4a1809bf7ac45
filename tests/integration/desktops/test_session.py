"""A session of a real desktop: what it gives, what its end leaves, and who is blamed for the end of a part.

The reference for "ready" and for the cookie are xprop and xdpyinfo of Debian's x11-utils, programs of their own.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eval.desktop import BrokenByAgent, DesktopGone, SetupFailed
from eval.desktops.display.running_desktop import NotOffered, ProgramNotStarted
from eval.desktops.isolation import Isolation
from eval.desktops.keeping.screen import missing_programs
from eval.desktops.session import DesktopOptions, DesktopSession, judge
from tests.support.desktops import descriptors, left, output, run
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("folder")
NOTHING = Isolation(root=os.geteuid() == 0, missing=("mount namespace: taken away by the test",))


def stale_socket(display: str) -> bool:
    """Whether a socket of this display is there that nobody answers; another server may have taken the number."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        return trial.connect_ex(f"/tmp/.X11-unix/X{display[1:]}") == errno.ECONNREFUSED


def asked(session: DesktopSession, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=dict(session.place.environ), capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("machine", [None, NOTHING], ids=["isolated", "nothing"])
def test_a_session_is_ready_and_its_end_leaves_nothing(machine: Isolation | None, folder: Path) -> None:
    async def work() -> None:
        async with await DesktopSession.start(DesktopOptions(screen=(1280, 720)), machine) as session:
            ready = asked(session, "xprop", "-root", "_NET_SUPPORTING_WM_CHECK")
            assert "window id # 0x" in ready.stdout
            told = asked(session, "xdpyinfo").stdout
            assert "1280x720 pixels" in told
            assert "GLX" not in told
            # the accessibility bus is started by the session's bus, and comes up after it
            until(lambda: "unix:" in asked(session, "xprop", "-root", "AT_SPI_BUS").stdout)
            await session.run(["galculator"])
            await session.windows(1)
            settings = session.place.home / ".config" / "gtk-3.0" / "settings.ini"
            assert "gtk-enable-animations=0" in settings.read_text()
            session.check()
        assert not stale_socket(session.place.display)

    run(work())
    before = descriptors()
    run(work())
    until(lambda: not left(folder), lambda: left(folder))
    assert descriptors() == before


def test_two_sessions_share_nothing_and_the_cookie_guards_the_display() -> None:
    async def work() -> None:
        one, other = await asyncio.gather(DesktopSession.start(), DesktopSession.start())
        try:
            assert one.place.display != other.place.display
            assert one.place.home != other.place.home
            stranger = {**one.place.environ, "XAUTHORITY": str(other.place.xauthority)}
            refused = subprocess.run(["xdpyinfo"], env=stranger, capture_output=True, text=True, timeout=60)
            assert refused.returncode != 0
            await one.run(["galculator"])
            await one.windows(1)
            assert "0x" not in asked(other, "xprop", "-root", "_NET_CLIENT_LIST").stdout
        finally:
            await one.stop()
            await other.stop()

    run(work())


@pytest.mark.parametrize("name", ["X server", "session bus", "accessibility bus", "window manager", "guest", "keeper"])
def test_the_crash_of_a_part_is_a_failure_of_infrastructure(name: str, folder: Path) -> None:
    async def work() -> None:
        session = await DesktopSession.start()
        try:
            os.kill(session.processes[name], signal.SIGKILL)
            error = await session.failed()
            assert isinstance(error, DesktopGone)
            with pytest.raises(DesktopGone):
                await session.run(["galculator"])
        finally:
            await session.stop()

    run(work())
    until(lambda: not left(folder), lambda: left(folder))


def test_a_crashed_program_is_the_matter_of_the_task() -> None:
    async def work() -> None:
        async with await DesktopSession.start() as session:
            program = await session.run(["galculator"])
            await session.windows(1)
            await session.run(["kill", "-SEGV", str(program.pid)])
            assert await program.wait() == -signal.SIGSEGV
            await session.windows(0)
            session.check()
            with pytest.raises(ProgramNotStarted, match="no-such-program: No such file"):
                await session.run(["no-such-program"])

    run(work())


def test_a_session_ends_with_the_process_that_started_it(folder: Path) -> None:
    code = (
        "import asyncio, os, signal\n"
        f"import eval.desktops.session as module; module.FOLDERS = {str(folder)!r}\n"
        "from eval.desktops.session import DesktopSession\n"
        "async def work():\n"
        "    session = await DesktopSession.start()\n"
        "    await session.run(['galculator'])\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(work())\n"
    )
    died = subprocess.run([sys.executable, "-c", code], timeout=120)
    assert died.returncode == -signal.SIGKILL
    until(lambda: not left(folder), lambda: left(folder))


def test_a_reset_mends_a_desktop_and_leaves_nothing_of_the_last_episode() -> None:
    async def work() -> None:
        async with await DesktopSession.start() as session:
            clean = asked(session, "xprop", "-root").stdout
            keymap = asked(session, "xmodmap", "-pke").stdout
            (session.place.home / "left.txt").write_text("of the last episode")
            assert asked(session, "xprop", "-root", "-f", "LEFT", "8s", "-set", "LEFT", "x").returncode == 0
            assert asked(session, "xmodmap", "-e", "keycode 38 = q Q").returncode == 0
            assert asked(session, "xmodmap", "-pke").stdout != keymap
            os.kill(session.processes["X server"], signal.SIGKILL)
            await session.failed()
            await session.reset()
            session.check()
            assert asked(session, "xmodmap", "-pke").stdout == keymap
            names = {line.split("(")[0] for line in asked(session, "xprop", "-root").stdout.splitlines()}
            assert "LEFT" not in names
            own = (
                "_NET_",
                "_OB_",
                "AT_SPI_BUS",
            )  # the window manager and the accessibility bus are still setting theirs
            before = {line.split("(")[0] for line in clean.splitlines()}
            assert {name for name in names - before if not name.startswith(own)} == set()
            assert not (session.place.home / "left.txt").exists()

    run(work())


def test_opengl_is_offered_where_it_is_asked_for() -> None:
    async def work() -> None:
        async with await DesktopSession.start(DesktopOptions(screen=(640, 480), opengl=True)) as session:
            assert "GLX" in asked(session, "xdpyinfo").stdout

    run(work())


def starter(session: DesktopSession) -> int:
    """The process that started its keeper."""
    status = Path(f"/proc/{session.processes['keeper']}/status").read_text()
    return int(status.split("PPid:")[1].split()[0])


def test_sessions_go_on_when_the_process_that_starts_their_keepers_is_killed(folder: Path) -> None:
    async def work() -> None:
        async with await DesktopSession.start() as one:
            server = starter(one)
            assert server != os.getpid()
            os.kill(server, signal.SIGKILL)
            until(lambda: "State:\tZ" in Path(f"/proc/{server}/status").read_text())
            async with await DesktopSession.start() as other:  # by a new one
                for session in (one, other):
                    await session.run(["galculator"])
                    await session.windows(1)
                    session.check()

    run(work())
    until(lambda: not left(folder), lambda: left(folder))


def test_a_start_that_cannot_be_asked_for_leaves_nothing(folder: Path) -> None:
    async def work() -> None:
        with pytest.raises(SetupFailed, match="the process that starts keepers"):
            await DesktopSession.start(DesktopOptions(environ={"LONG": "x" * 500_000}))
        assert left(folder) == []
        async with await DesktopSession.start() as session:
            session.check()

    run(work())
    until(lambda: not left(folder), lambda: left(folder))


def test_a_forked_process_starts_keepers_of_its_own(folder: Path) -> None:
    async def parents() -> set[int]:
        async with await DesktopSession.start() as session:
            return {starter(session)}

    (ours,) = run(parents())
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = int(run(parents()) == {ours})
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run(parents()) == {ours}
    until(lambda: not left(folder), lambda: left(folder))


def test_without_limits_no_terminal_is_offered_unless_configured() -> None:
    async def work() -> None:
        async with await DesktopSession.start(machine=NOTHING) as session:
            with pytest.raises(NotOffered, match="taken away by the test"):
                await session.run(["/usr/bin/xterm"])
            await session.run(["galculator"])
        async with await DesktopSession.start(DesktopOptions(terminal="always"), NOTHING) as session:
            assert await output(session, "echo offered") == "offered"

    run(work())


def test_a_program_that_is_not_installed_is_told_with_its_package(tmp_path: Path) -> None:
    told = [line.split(": ")[1].removeprefix("apt-get install ") for line in missing_programs(str(tmp_path))]
    assert told[:3] == ["xvfb", "dbus", "openbox"]


def test_who_ended_a_part_is_read_from_the_evidence() -> None:
    nothing = {"guest": {"forks": 0, "memory": 0}, "screen": {"forks": 0, "memory": 0}}
    full = {**nothing, "screen": {"forks": 0, "memory": 1}}
    agent = [
        judge("window manager", 1, {"refused": nothing, "x_answers": True}),
        judge("window manager", 0, {"refused": nothing, "x_answers": True}),
        judge("X server", -9, {"refused": full}),
    ]
    ours = [
        judge("window manager", -11, {"refused": nothing, "x_answers": True}),
        judge("window manager", 1, {"refused": nothing, "x_answers": False}),
        judge("X server", -9, {"refused": nothing}),
        judge("session bus", -6, {}),
    ]
    assert all(isinstance(error, BrokenByAgent) for error in agent)
    assert all(isinstance(error, DesktopGone) for error in ours)


def test_a_desktop_starts_under_a_narrow_umask(folder: Path) -> None:
    """Runs of the local backend have 077, and the desktop's user has to read the bus's configuration."""

    async def work() -> None:
        async with await DesktopSession.start() as session:
            await session.run(["galculator"])
            await session.windows(1)
            assert session.place.xauthority.stat().st_mode & 0o077 == 0

    before = os.umask(0o077)
    try:
        run(work())
    finally:
        os.umask(before)
