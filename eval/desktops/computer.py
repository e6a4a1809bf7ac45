"""A desktop's screen, mouse and keyboard for asynchronous callers: over a display of this machine, or over a server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.desktop import ActionRefused, BrokenByAgent, DesktopGone, Observation
from eval.desktops.display.running_desktop import NotOffered, ProgramNotStarted, RunningDesktop
from eval.desktops.session import DesktopSession

if TYPE_CHECKING:
    from PIL import Image

if TYPE_CHECKING:
    from eval.desktops.display.executor import Executor, Look
    from eval.desktops.display.program_sleep import SleepWatch

T = TypeVar("T")
EVIDENCE_S: Final = 1.0  # so long after the display is gone its keeper has told whose doing it was
LAUNCH_S: Final = 30.0
ANSWERS_S: Final = 30.0  # so long a desktop has to answer and to show its screen, after an action that took too long


@dataclass(frozen=True)
class ShownScreen:
    """What the screen showed, as the agent sees it.

    image    the picture, with the pointer drawn in; a caller must not change it
    pointer  where the pointer's hot spot is, in pixels; None where a server does not tell
    changed  whether it differs from the look before
    settled  whether the screen had come to rest
    """

    image: Image.Image
    pointer: tuple[int, int] | None
    changed: bool
    settled: bool


class DesktopComputer(Protocol):
    """What acts on one desktop and looks at it. Each call may raise InfraError and BrokenByAgent."""

    async def act(self, actions: Sequence[Action]) -> ShownScreen:
        """Does the actions one after the other, and looks once the screen rests after them.

        Raises ActionRefused for the first action that cannot be done; those before it are done.
        """
        ...

    async def look(self) -> ShownScreen:
        """The screen, once it rests after the last action."""
        ...

    async def accessibility(self) -> Tree | None:
        """The accessibility tree, as it is now, with the screen and the windows; None where it is not to be had."""
        ...

    async def release(self) -> None:
        """Releases every key and button that is down."""
        ...

    async def answers(self) -> bool:
        """Called after `act` was given up: ends the action where that can be done, and releases what is down. False
        where the desktop does not answer."""
        ...

    async def close(self) -> None:
        """Releases what is down, and lets the desktop go; also when it is gone already."""
        ...


async def shown_if_it_answers(
    computer: DesktopComputer, observed: Callable[[ShownScreen], Awaitable[Observation]]
) -> Observation | None:
    """The screen after an action that was given up (eval.desktop.AnsweringDesktop); None: the desktop is gone."""
    try:
        async with asyncio.timeout(ANSWERS_S):
            return await observed(await computer.look()) if await computer.answers() else None
    except TimeoutError:  # a client's ServerTimeout is one, too
        return None


class DesktopPool:
    """Desktops by their addresses, each for one episode at a time."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Queue[str]] = WeakKeyDictionary()

    @property
    def waiting(self) -> asyncio.Queue[str]:
        """The free ones, the one that has been free for longest first; of each loop its own."""
        loop = asyncio.get_running_loop()
        if loop not in self._waiting:
            queue = self._waiting[loop] = asyncio.Queue()
            for address in self.addresses:
                queue.put_nowait(address)
        return self._waiting[loop]


class LocalComputer:
    """A computer over one connection to a session's display. Calls are done one after the other, in one thread."""

    def __init__(self, session: DesktopSession) -> None:
        self.session = session
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="desktop")
        # of its own: programs that answer slowly must not hold the threads that all desktops share
        self._trees = ThreadPoolExecutor(1, thread_name_prefix="tree")
        self._executor: Any = None
        self._programs: SleepWatch | None = None

    @classmethod
    async def open(cls, session: DesktopSession) -> LocalComputer:
        """Raises DesktopGone when the display cannot be reached."""
        from eval.desktops.display.executor import Executor
        from eval.desktops.display.program_sleep import SleepWatch

        computer = cls(session)
        launch = functools.partial(computer._launch, asyncio.get_running_loop())
        programs = SleepWatch(session.drawing)
        try:
            computer._executor = await computer._on_thread(
                Executor, session.place, launch, programs if programs.works else None
            )
            computer._programs = SleepWatch(session.drawing)  # one for each thread that asks
        except BaseException:
            computer._end_threads()
            raise
        return computer

    async def call(self, work: Callable[[Executor], T]) -> T:
        """Does some work with the executor, in its thread."""
        return await self._on_thread(work, self._executor)

    async def act(self, actions: Sequence[Action]) -> ShownScreen:
        def both(executor: Executor) -> ShownScreen:
            executor.perform(actions)
            return _shown(executor.look())

        return await self.call(both)

    async def look(self) -> ShownScreen:
        return await self.call(lambda executor: _shown(executor.look()))

    async def accessibility(self, *, whole: bool = False) -> Tree:
        """`whole`: see eval.desktops.trees.read_tree.

        Where the desktop's programs keep the bus from answering, the tree has no program, and `cut` says why.
        """
        from eval.desktops.bus.atspi import BusWatch

        watch = BusWatch(self.session.processes)
        try:
            reading = functools.partial(_read_tree, self._programs, self.session.place, whole=whole)
            tree = await asyncio.get_running_loop().run_in_executor(self._trees, reading)
        except DesktopGone as error:
            evidence = watch.evidence()
            cause = await self._cause(error)
            if evidence is None or cause is not error:
                raise cause from error
            tree = Tree(applications=[], cut=[f"no program was read: {error}; {evidence}"])
        tree.screen, tree.windows = await self.call(lambda executor: (executor.connection.size, executor.stacked()))
        return tree

    async def release(self) -> None:
        await self.call(lambda executor: executor.release())

    async def answers(self) -> bool:
        """Asks the X server on another connection. What the executor does now ends as soon as it comes to a pause."""
        from eval.desktops.display.connection import answers

        if self._executor is not None:
            self._executor.interrupted.set()
        if not await asyncio.to_thread(answers, self.session.place):
            return False
        await self.release()
        return True

    async def close(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, executor.close)
            except DesktopGone:
                pass  # there is nothing left to release
            finally:
                self._end_threads()

    def _end_threads(self) -> None:
        for threads in (self._thread, self._trees):
            threads.shutdown(wait=False)

    async def _on_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, functools.partial(call, *arguments))
        except DesktopGone as error:
            raise await self._cause(error) from error

    async def _cause(self, error: DesktopGone) -> Exception:
        """Why the display is gone: what the session's keeper knows; that a program of the desktop ended our connection,
        where the X server answers on another one; else the error itself."""
        from eval.desktops.display.connection import ConnectionLost, answers

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVIDENCE_S):
                return await self.session.failed()
        if isinstance(error, ConnectionLost) and await asyncio.to_thread(answers, self.session.place):
            return BrokenByAgent("a program of the agent ended the desktop's connection to the X server (KillClient)")
        return error

    def _launch(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        """Starts a program for open_app; called in the executor's thread."""
        started = asyncio.run_coroutine_threadsafe(self.session.run([name]), loop)
        try:
            started.result(LAUNCH_S)
        except (NotOffered, ProgramNotStarted) as error:
            raise ActionRefused(f"open_app: {error}") from None


def _read_tree(programs: SleepWatch | None, place: RunningDesktop, *, whole: bool) -> Tree:
    """The tree, and whether a program was at work before: reading it wakes them all."""
    from eval.desktops.trees import read_tree

    working = programs is not None and not programs.asleep() and programs.works
    tree = read_tree(place, whole=whole)
    tree.working = working
    return tree


def _shown(look: Look) -> ShownScreen:
    return ShownScreen(look.frame.image(), look.frame.pointer, look.changed, look.settled)
