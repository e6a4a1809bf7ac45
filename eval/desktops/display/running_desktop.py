"""Where a running desktop is: what a program needs to open its display and its buses; and a program that runs there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final


@dataclass(frozen=True)
class RunningDesktop:
    """One running desktop.

    display     the X display, as ":3"
    xauthority  the file that holds the display's cookie; it exists, and is empty where the display asks for none
    environ     the whole environment of a program that starts on the desktop: DISPLAY, XAUTHORITY, HOME,
                DBUS_SESSION_BUS_ADDRESS, XDG_RUNTIME_DIR, PATH and what else the session gives its programs
    home        the folder that belongs to the desktop's user, as seen from here
    root        the root folder of what the desktop's programs see, as seen from here
    """

    display: str
    xauthority: Path
    environ: Mapping[str, str]
    home: Path
    root: Path = Path("/")

    @property
    def home_inside(self) -> PurePosixPath:
        """The home as the desktop's programs see it."""
        return PurePosixPath("/") / self.home.relative_to(self.root)


# Programs in which an agent can type commands
_SHELLS: Final = ("bash", "dash", "sh", "zsh")
_EMULATORS: Final = ("gnome-terminal", "konsole", "lxterminal", "mate-terminal", "qterminal", "rxvt", "terminator")
TERMINALS: Final = frozenset({*_SHELLS, *_EMULATORS, "uxterm", "x-terminal-emulator", "xfce4-terminal", "xterm"})


class NotOffered(Exception):
    """A program that this session does not start: its machine cannot keep the agent within limits."""


class ProgramNotStarted(Exception):
    """A program of the task did not start: a matter of the task, not of the machine."""


class Program:
    """A program that was started on the desktop. `pid` is the number inside the desktop's PID namespace."""

    def __init__(self, argv: Sequence[str], pid: int) -> None:
        self.argv = tuple(argv)
        self.pid = pid
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def status(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        """Waits for its end, and gives its status."""
        return await asyncio.shield(self._ended)
