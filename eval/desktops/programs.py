"""The programs that a session starts on its desktop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

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
