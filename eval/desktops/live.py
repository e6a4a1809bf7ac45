"""A real desktop as the rollout uses it: a session, one connection to its display, and a scene that is judged."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from eval.actions import Action
from eval.desktop import ActionRefused, DesktopGone, Expected, Observation, Score, Task
from eval.desktops.session import DesktopOptions, DesktopSession, NotOffered, ProgramNotStarted

T = TypeVar("T")
EVIDENCE_S: Final = 1.0  # so long after the display is gone its keeper has told whose doing it was
LAUNCH_S: Final = 30.0


class Scene(Protocol):
    """One task on a real desktop, drawn from its seed."""

    async def prepare(self, session: DesktopSession) -> None:
        """Makes the start state on a clean desktop: files, programs, windows. Raises SetupFailed."""
        ...

    def expected(self, done: Sequence[Action]) -> Expected | None:
        """What an expert does after the actions `done`; None where the scene has no expert."""
        ...

    def judge(self, home: Path) -> Score:
        """Judges the files of the desktop's home, never a picture. Raises BrokenByAgent."""
        ...


class LiveDesktop:
    """eval.desktop.Desktop over a session. `scene` makes the scene of a task from its seed."""

    def __init__(self, scene: Callable[[Task, int], Scene], options: DesktopOptions | None = None) -> None:
        self._make = scene
        self._options = options or DesktopOptions()
        self._session: DesktopSession | None = None
        self._executor: Any = None
        # one thread: the connection to the display is for one caller at a time
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="desktop")
        self._done: list[Action] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        from eval.desktops.executor import Executor

        await self._disconnect()
        if self._session is None:
            self._session = await DesktopSession.start(self._options)
        else:
            await self._session.reset()
        self._done = []
        self._scene = self._make(task, seed)
        await self._scene.prepare(self._session)
        launch = functools.partial(self._launch, asyncio.get_running_loop())
        self._executor = await self._on_thread(Executor, self._session.place, launch)
        return await self._observe()

    async def step(self, action: Action) -> Observation:
        await self._on_thread(self._executor.perform, [action])
        self._done.append(action)
        return await self._observe()

    async def score(self) -> Score:
        """Releases what is held, then judges. Raises what `DesktopSession.check` raises."""
        assert self._session is not None
        await self._on_thread(self._executor.release)
        self._session.check()
        return await asyncio.to_thread(self._scene.judge, self._session.place.home)

    async def close(self) -> None:
        await self._disconnect()
        session, self._session = self._session, None
        if session is not None:
            await session.stop()
        self._thread.shutdown(wait=False)

    async def _observe(self) -> Observation:
        look = await self._on_thread(self._executor.look)
        return Observation(look.frame.image(), look.frame.size, expected=self._scene.expected(self._done))

    async def _disconnect(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, executor.close)
            except DesktopGone:
                return  # there is nothing left to release

    async def _on_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, functools.partial(call, *arguments))
        except DesktopGone as error:
            raise await self._cause(error) from error

    async def _cause(self, error: DesktopGone) -> Exception:
        """Why the display is gone: what the session's keeper knows, else the error itself."""
        assert self._session is not None
        try:
            async with asyncio.timeout(EVIDENCE_S):
                return await self._session.failed()
        except TimeoutError:
            return error

    def _launch(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        """Starts a program for open_app; called in the executor's thread."""
        assert self._session is not None
        started = asyncio.run_coroutine_threadsafe(self._session.run([name]), loop)
        try:
            started.result(LAUNCH_S)
        except (NotOffered, ProgramNotStarted) as error:
            raise ActionRefused(f"open_app: {error}") from None
