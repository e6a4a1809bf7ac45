"""Looking on: a running desktop in a person's browser, by Debian's x11vnc, websockify and novnc.

The viewer only watches unless asked for more. The VNC server listens on a Unix socket in the session's folder, which
the agent's programs do not see; websockify listens on this machine's loopback address. What they really listen on is
read from the kernel: Debian's x11vnc listens on every IPv6 address although `-rfbport 0 -no6` says that it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from eval.desktop import DesktopTimeout, SetupFailed
from eval.desktops.session import DesktopSession

PAGES: Final = Path("/usr/share/novnc")
READY_LIMIT_S: Final = 60.0
_LISTENS: Final = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}  # table -> state in it (tcp_states.h)
_ACCEPTS: Final = 1 << 16  # a Unix socket's flag __SO_ACCEPTCON


@dataclass(frozen=True)
class View:
    """A desktop in a browser: open `url`, type `password`. `control`: the viewer's mouse and keys count."""

    url: str
    port: int
    password: str
    control: bool


def write_private(view: View) -> Path:
    """Writes the view as JSON into a file that only this user can read, named by its port. Raises OSError."""
    file = Path("/tmp", f"desktop-view-{view.port}.json")
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        json.dump(asdict(view), out)
    return file


def missing_viewers() -> list[str]:
    """Debian's packages that are not installed and that `start_view` needs."""
    missing = [name for name in ("x11vnc", "websockify") if not shutil.which(name)]
    return missing if PAGES.is_dir() else [*missing, "novnc"]


async def start_view(
    session: DesktopSession, control: bool = False, *, port: int = 0, lasting: bool = False, password: str = ""
) -> View:
    """Shows the session's desktop under a URL of this machine, with a password of its own, until the session is reset
    or stopped, or `end_views` is called.

    port      of this machine's loopback address; 0: a free one
    lasting   each reset of the session shows the new desktop under the same URL and password
    password  at most 8 characters, which is all that VNC looks at; without one it is drawn

    Raises SetupFailed when a program is missing, DesktopTimeout when the page does not answer.
    """
    if missing := missing_viewers():
        raise SetupFailed(f"to look on, install: apt-get install {' '.join(missing)}")
    if not port:
        with socket.socket() as trial:
            trial.bind(("127.0.0.1", 0))
            port = int(trial.getsockname()[1])
    page = "vnc.html?autoconnect=true&resize=scale&reconnect=true&reconnect_delay=1000"
    view = View(f"http://127.0.0.1:{port}/{page}", port, password or secrets.token_urlsafe(6), control)

    async def begin() -> None:
        await _begin(session, view)

    await begin()
    if lasting:
        session.after_reset(begin)
    return view


async def _begin(session: DesktopSession, view: View) -> None:
    folder = session.place.xauthority.parent
    name = secrets.token_hex(4)
    socket_path, password_file = folder / f"view-{name}", folder / f"view-{name}.password"
    password_file.touch(mode=0o600)
    password_file.write_text(view.password + "\n")
    server = ["x11vnc", "-display", session.place.display, "-auth", str(session.place.xauthority)]
    server += ["-passwdfile", str(password_file), "-unixsock", str(socket_path), "-rfbport", "0"]
    server += ["-no6", "-rfbportv6", "-1"]  # the second is what Debian's libvncserver obeys
    server += ["-forever", "-shared", "-quiet", "-nobell", "-noremote"]
    if not view.control:
        server += ["-viewonly", "-nosetclipboard", "-nosetprimary"]
    await session.view(server)
    await session.view(["websockify", "--web", str(PAGES), f"--unix-target={socket_path}", f"127.0.0.1:{view.port}"])
    try:
        async with asyncio.timeout(READY_LIMIT_S):
            while not (socket_path.exists() and await _answers(view.port)):
                session.check()
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise DesktopTimeout(f"the view of the desktop did not answer within {READY_LIMIT_S:g} s") from None
    promised = {f"unix:{socket_path}", f"127.0.0.1:{view.port}"}
    if more := sorted(listening(processes_with(str(socket_path))) - promised):
        await session.end_views()
        raise SetupFailed(f"the view of the desktop was ended: its programs listen on {', '.join(more)} as well")


async def _answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True
    return False


def listening(processes: Iterable[int]) -> set[str]:
    """The addresses on which these processes take connections or datagrams: `127.0.0.1:80`, `[::]:5900`, `unix:/PATH`,
    and `unix:@NAME` for one of the abstract namespace. A process that has ended has none. Raises PermissionError for
    another user's process."""
    found: set[str] = set()
    for process in processes:
        with suppress(FileNotFoundError, ProcessLookupError):
            found |= _of(Path("/proc", str(process)))
    return found


def processes_with(word: str) -> list[int]:
    """Processes in whose arguments a word stands."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if word.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


def _of(process: Path) -> set[str]:
    mine = set()
    for descriptor in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                mine.add(target[8:-1])
    found = set()
    for table, state in _LISTENS.items():
        with suppress(FileNotFoundError):  # a kernel without IPv6
            for line in (process / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == state and words[9] in mine:
                    found.add(_address(words[1]))
    for line in (process / "net" / "unix").read_text().splitlines()[1:]:
        words = line.split(maxsplit=7)
        if int(words[3], 16) & _ACCEPTS and words[6] in mine and len(words) > 7:
            found.add(f"unix:{words[7]}")
    return found


def _address(text: str) -> str:
    """The kernel's form: words of four bytes, each in the machine's order, then the port."""
    digits, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
    address = ipaddress.ip_address(raw)
    return f"[{address}]:{int(port, 16)}" if address.version == 6 else f"{address}:{int(port, 16)}"
