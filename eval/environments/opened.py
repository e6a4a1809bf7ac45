"""A desktop without a task: some programs are open, and nothing is judged."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Sequence

from eval.config import ConfigError
from eval.desktop import DesktopTimeout, SetupFailed
from eval.desktops.session import DesktopSession, NotOffered, ProgramNotStarted

Then = Callable[[DesktopSession], Awaitable[None]]


class OpenScene:
    """A desktop with some programs open. then: what is done after they are."""

    def __init__(
        self, programs: Sequence[str], then: Callable[[DesktopSession], Awaitable[None]] | None = None
    ) -> None:
        """Raises ConfigError for a command that is none."""
        self.commands = [_command(text, number) for number, text in enumerate(programs)]
        self.then = then

    async def open(self, session: DesktopSession) -> None:
        for number, command in enumerate(self.commands, 1):
            try:
                await session.run(command)
            except (NotOffered, ProgramNotStarted) as error:
                raise SetupFailed(f"open: {error}") from None
            try:
                await session.windows(number)
            except DesktopTimeout as error:
                raise SetupFailed(f"open: {command[0]}: {error}") from None
        if self.then is not None:
            await self.then(session)


def _command(text: str, number: int) -> list[str]:
    try:
        command = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"open[{number}]: {text!r}: {error}") from None
    if not command:
        raise ConfigError(f"open[{number}]: names no program")
    return command
