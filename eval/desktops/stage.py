"""What a task prepares and judges: the files, programs and windows of one desktop, of this machine or behind a server.

A task is written once against `DesktopStage` and works on both.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.desktop import BrokenByAgent, DesktopTimeout, NotRunHere, SetupFailed
from eval.desktops.computer import DesktopComputer, LocalComputer
from eval.desktops.display.program_sleep import SleepWatch
from eval.desktops.display.running_desktop import NotOffered, ProgramNotStarted
from eval.desktops.reading import FileEntry, list_files, read_file
from eval.desktops.session import DesktopSession

if TYPE_CHECKING:
    from eval.desktops.client.fast import DesktopClient

CLEAR_S: Final = 5.0  # seconds that programs have to be gone
WINDOW_S: Final = 60.0  # seconds after which programs that have nothing to do any more open no window
FILES_TIME: Final = 1_735_732_800.0  # 2025-01-01 12:00 UTC: a list of files with their times is the same picture again

RESTING: Final = 20
LOOK_S: Final = 0.1


class DesktopStage(Protocol):
    """One desktop. Paths are relative to the home of its user. Every call may raise InfraError."""

    async def write_file(self, path: str, data: bytes) -> None:
        """Writes a file that belongs to the desktop's user, and the folders above it."""
        ...

    async def read_file(self, path: str) -> bytes:
        """The content of a plain file. Raises FileNotFoundError, and BrokenByAgent for a trap in its place."""
        ...

    async def list_files(self, folder: str) -> dict[str, FileEntry]:
        """What lies below a folder, by its path from there ("" is the home); nothing where no such folder is.

        Raises BrokenByAgent.
        """
        ...

    async def start(self, argv: Sequence[str]) -> None:
        """Starts a program that stays. Raises SetupFailed."""
        ...

    async def serve(self, module: str, order: Mapping[str, Any]) -> str:
        """Starts a web application for the desktop's programs (eval.desktops.sites); gives its origin, as
        http://127.0.0.1:8080. Raises SetupFailed."""
        ...

    async def served(self) -> dict[str, Any]:
        """What the web application holds now."""
        ...

    async def windows(self, count: int) -> None:
        """Waits until the window manager manages so many windows."""
        ...

    async def act(self, actions: Sequence[Action]) -> None:
        """Does actions, and waits until the screen rests."""
        ...

    async def tree(self) -> Tree:
        """The accessibility tree, as it is now."""
        ...


@runtime_checkable
class ClearedStage(Protocol):
    """What a stage can besides, where a task goes on with other programs."""

    async def clear(self) -> int:
        """Ends every program that has a window; gives how many windows are left, 0 as a rule."""
        ...


class LocalStage:
    """A desktop of this machine. `computer` acts on it."""

    def __init__(self, session: DesktopSession, computer: DesktopComputer) -> None:
        self.session = session
        self.computer = computer

    async def write_file(self, path: str, data: bytes) -> None:
        from eval.desktops.server import files
        from eval.desktops.server.errors import Refused

        try:
            await asyncio.to_thread(files.write, path, data, self.session.place, FILES_TIME)
        except Refused as error:
            raise SetupFailed(str(error)) from None

    async def read_file(self, path: str) -> bytes:
        return await asyncio.to_thread(read_file, self.session.place.home, path)

    async def list_files(self, folder: str) -> dict[str, FileEntry]:
        return await asyncio.to_thread(list_files, self.session.place.home, folder)

    async def start(self, argv: Sequence[str]) -> None:
        try:
            await self.session.run(argv)
        except (NotOffered, ProgramNotStarted) as error:
            raise NotRunHere(f"missing dependency: {error}") from None

    async def serve(self, module: str, order: Mapping[str, Any]) -> str:
        return (await self.session.serve(module, order)).origin

    async def served(self) -> dict[str, Any]:
        if self.session.site is None:
            raise SetupFailed("no web application runs")
        return await self.session.site.state()

    async def windows(self, count: int) -> None:
        programs = SleepWatch(self.session.drawing)
        while True:
            try:
                return await self.session.windows(count, WINDOW_S)
            except DesktopTimeout:  # those that are still at work may show it yet; the rollout's limit ends them
                if not programs.works or await _at_rest(programs):
                    raise

    async def act(self, actions: Sequence[Action]) -> None:
        await self.computer.act(actions)

    async def clear(self) -> int:
        if not isinstance(self.computer, LocalComputer):
            raise NotRunHere("missing dependency: only desktops of this machine end programs")
        shown = await self.computer.call(lambda executor: executor.windows.listed())
        if pids := sorted({window.pid for window in shown} - {0}):
            await self.start(["kill", "-KILL", *map(str, pids)])
        with contextlib.suppress(DesktopTimeout):  # a window may belong to nobody who can be ended
            await self.session.windows(0, CLEAR_S)
        return self.session.window_count

    async def tree(self) -> Tree:
        tree = await self.computer.accessibility()
        if tree is None:
            raise SetupFailed("the desktop tells no accessibility tree")
        return tree


async def _at_rest(programs: SleepWatch) -> bool:
    """Whether every program sleeps at each of RESTING looks: one that starts has moments in which all sleep."""
    for _ in range(RESTING):
        if not await asyncio.to_thread(programs.asleep):
            return False
        await asyncio.sleep(LOOK_S)
    return True


class ServedStage:
    """A desktop behind a server."""

    def __init__(self, client: DesktopClient) -> None:
        self.client = client

    async def write_file(self, path: str, data: bytes) -> None:
        if self.client.status.files == "off":
            raise SetupFailed("the desktop's server gives no files: --files home")
        await self.client.write_file(path, data)

    async def read_file(self, path: str) -> bytes:
        from eval.desktops.client.failures import AccessRefused, AnswerTooLarge

        try:
            return await self.client.read_file(path)
        except (AccessRefused, AnswerTooLarge) as error:
            raise BrokenByAgent(f"{path} cannot be read: {error}") from None

    async def list_files(self, folder: str) -> dict[str, FileEntry]:
        from eval.desktops.client.failures import AccessRefused, AnswerTooLarge

        try:
            return await self.client.list_files(folder)
        except (AccessRefused, AnswerTooLarge) as error:
            raise BrokenByAgent(f"{folder} cannot be listed: {error}") from None

    async def start(self, argv: Sequence[str]) -> None:
        try:
            await self.client.start(argv)
        except FileNotFoundError as error:
            raise NotRunHere(f"missing dependency: {error}") from None

    async def serve(self, module: str, order: Mapping[str, Any]) -> str:
        raise NotRunHere("missing dependency: a desktop behind a server has no web applications: leave out `role`")

    async def served(self) -> dict[str, Any]:
        raise SetupFailed("no web application runs")

    async def windows(self, count: int) -> None:
        await self.client.windows(count, WINDOW_S)

    async def act(self, actions: Sequence[Action]) -> None:
        await self.client.perform(actions)
        await self.client.look()

    async def tree(self) -> Tree:
        return await self.client.tree()
