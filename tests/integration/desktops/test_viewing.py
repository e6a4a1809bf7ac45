"""Looking on a running desktop: the page of noVNC, and the VNC protocol as RFC 6143 has it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from eval.config import EXIT_CONFIG
from eval.desktop import SetupFailed
from eval.desktops.session import DesktopSession
from eval.desktops.viewing import listening, missing_viewers, processes_with, start_view
from tests.support.desktops import left, run
from tests.support.needs import lacking
from tests.support.vnc import frame, send, websocket
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _viewers() -> None:
    if missing := missing_viewers():
        lacking("desktop", f"no {', '.join(missing)}")


def test_a_person_can_look_on_with_the_sessions_password_only(folder: Path) -> None:
    async def work() -> None:
        async with await DesktopSession.start() as session:
            view = await start_view(session)
            page = await asyncio.to_thread(urllib.request.urlopen, view.url, timeout=60)
            with page:
                assert b"noVNC" in page.read()
            with await asyncio.to_thread(websocket, view.port) as channel:
                assert frame(channel).startswith(b"RFB 003.00")
                send(channel, b"RFB 003.008\n")
                assert frame(channel) == b"\x01\x02"  # one kind of security: VNC's password
                send(channel, b"\x02")
                assert len(frame(channel)) == 16
                send(channel, bytes(16))  # not the challenge encrypted with the password
                assert frame(channel)[:4] == b"\0\0\0\1"  # refused
            other = await start_view(session, control=True)
            assert (other.password, other.port) != (view.password, view.port)
            session.check()

    run(work())
    until(lambda: not left(folder), lambda: left(folder))


def test_nobody_outside_of_this_machine_can_connect(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = Path("/proc/net/if_inet6")
    if not addresses.exists() or not addresses.read_text():
        pytest.fail("without IPv6 the fault is invisible; sysctl net.ipv6.conf.lo.disable_ipv6=0 gives it to lo")

    async def work() -> None:
        async with await DesktopSession.start() as session:
            before = listening(processes_with(str(folder)))
            view = await start_view(session, control=True)
            (own,) = folder.glob("*/view-????????")
            assert listening(processes_with(str(folder))) - before == {f"unix:{own}", f"127.0.0.1:{view.port}"}
            await session.end_views()
            # a version of the server that listens on more than it was told to
            start = session.view
            monkeypatch.setattr(
                session, "view", lambda command: start([one for one in command if one not in ("-rfbportv6", "-1")])
            )
            with pytest.raises(SetupFailed, match=r"its programs listen on .*\[::\]:59"):
                await start_view(session)
            assert not [one for one in listening(processes_with(str(folder))) - before if not one.startswith("unix:")]

    run(work())
    until(lambda: not left(folder), lambda: left(folder))


def test_nothing_of_a_view_listens_once_it_was_ended(folder: Path) -> None:
    """Whatever the program does about it, as a version that does not obey SIGTERM."""
    deaf = "import signal, socket, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); port = socket.create_server"
    deaf += "(('127.0.0.1', 0)); open(sys.argv[1], 'w').close(); signal.pause()"

    async def work() -> None:
        async with await DesktopSession.start() as session:
            before = listening(processes_with(str(folder)))
            begun = session.place.xauthority.parent / "begun"
            await session.view([sys.executable, "-c", deaf, str(begun)])
            async with asyncio.timeout(60):
                while not begun.exists():
                    await asyncio.sleep(0.02)
            assert len(listening(processes_with(str(folder))) - before) == 1
            await session.end_views()
            assert listening(processes_with(str(folder))) == before

    run(work())
    until(lambda: not left(folder), lambda: left(folder))


def test_the_x_servers_sockets_ask_for_the_cookie(folder: Path) -> None:
    """The abstract one, too, which lies in no folder: every program in the machine's network can call it."""

    async def work() -> None:
        async with await DesktopSession.start() as session:
            for name in (b"/tmp/.X11-unix/X", b"\0/tmp/.X11-unix/X"):
                with socket.socket(socket.AF_UNIX) as channel:
                    channel.connect(name + session.place.display[1:].encode())
                    channel.sendall(struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0))  # without an authorization
                    assert await asyncio.to_thread(channel.recv, 1) == b"\0"  # refused

    run(work())


@pytest.mark.parametrize("options", [{}, {"control": True}, {"lasting": True}], ids=str)
def test_ss_says_what_listens_before_and_during_each_view(folder: Path, options: dict[str, bool]) -> None:
    """iproute2's `ss -ltnpx`, which reads the kernel on its own, of the processes of this session."""

    def by_ss() -> set[str]:
        pids = {f"pid={pid}," for pid in processes_with(str(folder))}
        lines = subprocess.run(["ss", "-H", "-ltnpx"], capture_output=True, text=True, check=True).stdout.splitlines()
        return {
            f"unix:{words[4]}" if words[0] == "u_str" else words[4]
            for words in map(str.split, lines)
            if any(pid in words[-1] for pid in pids)
        }

    async def work() -> None:
        async with await DesktopSession.start() as session:
            before = by_ss()
            screen = f"/tmp/.X11-unix/X{session.place.display[1:]}"  # and its abstract twin, which asks for the cookie
            buses = {f"unix:{file}" for file in folder.glob("*/bus/**/*") if file.is_socket()}
            # `*`: the X server's sockets without a name, to which nobody can connect
            assert before - {"unix:*"} == {f"unix:{screen}", f"unix:@{screen}", *buses}
            assert len(buses) == 2
            view = await start_view(session, **options)
            (own,) = folder.glob("*/view-????????")
            assert by_ss() - before == {f"unix:{own}", f"127.0.0.1:{view.port}"}
            await session.end_views()
            assert by_ss() == before

    run(work())
    until(lambda: not left(folder), lambda: left(folder))


def test_a_lasting_view_shows_the_desktop_after_each_reset(folder: Path) -> None:
    async def work() -> None:
        async with await DesktopSession.start() as session:
            view = await start_view(session, lasting=True)
            passwords = {password(folder)}
            for _ in range(2):
                await session.reset()
                with await asyncio.to_thread(websocket, view.port) as channel:
                    assert frame(channel).startswith(b"RFB 003.00")
                passwords.add(password(folder))
            assert passwords == {view.password}

    run(work())
    until(lambda: not left(folder), lambda: left(folder))


def password(folder: Path) -> str:
    """What the VNC server of the one session was given."""
    (file,) = folder.glob("*/view-*.password")
    return file.read_text().strip()


def test_a_server_shows_its_desktop_and_keeps_the_password_for_its_user(tmp_path: Path) -> None:
    """As the role `desktop` of a run starts it."""
    (tmp_path / "token").write_text("a-word")
    command = [sys.executable, "-m", "eval.desktops.server", "--listen", "127.0.0.1:0", "--token-file", "token"]
    with subprocess.Popen(
        [*command, "--view", "0", "--screen", "640x480"], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            said_address = server.stdout.readline()
            assert said_address.startswith("listening on ")
            found = re.fullmatch(r"shown at 127\.0\.0\.1:(\d+); the password is in (\S+)\n", said)
            assert found is not None, said
            file = Path(found[2])
            assert (file.stat().st_mode & 0o777, file.name) == (0o600, f"desktop-view-{found[1]}.json")
            address = said_address.removeprefix("listening on http://").strip()
            assert listening([server.pid]) == {address}
            view = json.loads(file.read_text())
            assert view["password"] not in said
            assert not view["control"]
            with urllib.request.urlopen(view["url"], timeout=60) as page:
                assert b"noVNC" in page.read()
        finally:
            server.terminate()
    assert server.returncode == 0
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--view", "70000"], "--view: 70000; allowed: 0 to"), (["--control"], "--control needs --view")],
)
def test_a_wrong_view_is_one_line(words: list[str], said: str) -> None:
    command = [sys.executable, "-m", "eval.desktops.server", "--open-port", "0", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (EXIT_CONFIG, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
