"""Looking on: a running desktop in a person's browser, by Debian's x11vnc, websockify and novnc.

The viewer only watches unless asked for more. The VNC server listens on a Unix socket in the session's folder, which
the agent's programs do not see; websockify listens on this machine's loopback address.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from eval.desktop import DesktopTimeout, SetupFailed
from eval.desktops.listening import listening as listens_on
from eval.desktops.listening import processes_with
from eval.desktops.session import DesktopSession

PAGES: Final = Path("/usr/share/novnc")
READY_LIMIT_S: Final = 60.0


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
    listening, password_file = folder / f"view-{name}", folder / f"view-{name}.password"
    password_file.touch(mode=0o600)
    password_file.write_text(view.password + "\n")
    server = ["x11vnc", "-display", session.place.display, "-auth", str(session.place.xauthority)]
    server += ["-passwdfile", str(password_file), "-unixsock", str(listening), "-rfbport", "0"]
    server += ["-no6", "-rfbportv6", "-1"]  # the second is what Debian's libvncserver obeys
    server += ["-forever", "-shared", "-quiet", "-nobell", "-noremote"]
    if not view.control:
        server += ["-viewonly", "-nosetclipboard", "-nosetprimary"]
    await session.view(server)
    await session.view(["websockify", "--web", str(PAGES), f"--unix-target={listening}", f"127.0.0.1:{view.port}"])
    try:
        async with asyncio.timeout(READY_LIMIT_S):
            while not (listening.exists() and await _answers(view.port)):
                session.check()
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise DesktopTimeout(f"the view of the desktop did not answer within {READY_LIMIT_S:g} s") from None
    promised = {f"unix:{listening}", f"127.0.0.1:{view.port}"}
    if more := sorted(listens_on(processes_with(str(listening))) - promised):
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
