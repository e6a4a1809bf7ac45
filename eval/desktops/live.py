"""A real desktop as the rollout uses it: a session, what acts on it, and a scene that is judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from eval.accessibility.tree import Tree
from eval.accessibility.visible import marks_of
from eval.actions import Action, ActionType
from eval.desktop import Expected, Observation, Score, Task
from eval.desktops.computer import DesktopComputer, LocalComputer, ShownScreen, shown_if_it_answers
from eval.desktops.display.program_sleep import ServedTime, SleepWatch
from eval.desktops.person.action_gatherer import Gatherer
from eval.desktops.session import DesktopOptions, DesktopSession
from eval.desktops.stage import DesktopStage, LocalStage
from eval.desktops.tools import TOOLS, call
from eval.desktops.video import file_of, record
from eval.desktops.viewing import start_view

REST_S: Final = 0.2  # a desktop rests whose programs slept for so long
LOOK_S: Final = 0.03
WORK_S: Final = 5.0  # the judge waits no longer for programs that still work; what a busy machine takes is left out
HANGS_S: Final = 240.0  # and no longer than this in any case; the rollout's own limit is 300 s
POLL_S: Final = 0.1  # so often it is looked whether what a person began is whole
IDLE_S: Final = 1.0  # so often the screen is looked at while a person does nothing
HOW_TO_END: Final = "when it is done: Ctrl+Alt+Enter; when it cannot be done: Ctrl+Alt+Backspace"


@runtime_checkable
class OpeningScene(Protocol):
    """A desktop of this machine with something open, and no task."""

    async def open(self, session: DesktopSession) -> None:
        """Makes the start state on a clean desktop. Raises SetupFailed."""
        ...


class TaskScene(Protocol):
    """One task on a real desktop, of this machine or behind a server, drawn from its seed."""

    async def prepare(self, stage: DesktopStage) -> None:
        """Makes the start state on a clean desktop: files, programs, windows. Raises SetupFailed."""
        ...

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        """What an expert does after the actions `done`, on a desktop with this accessibility tree; None where the scene
        has no expert, or where it was not followed."""
        ...

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        """Judges the state after the actions `done`, never a picture. Raises BrokenByAgent."""
        ...


@runtime_checkable
class ChangingScene(Protocol):
    """A task on whose desktop something happens beside what the agent does."""

    async def after(self, stage: DesktopStage, done: Sequence[Action]) -> bool:
        """Called after each action and each call of a tool; gives whether something happened. Raises SetupFailed."""
        ...


class LiveDesktop:
    """eval.desktop.Desktop over a session. `scene` makes the scene of a task from its seed.

    connect  gives what acts on a session's desktop; without it a connection to its display
    video    a folder that gets a video of each episode (eval.desktops.video)
    tree     whether each observation has the accessibility tree, and marks made of it; it takes some 50 ms
    """

    def __init__(
        self,
        scene: Callable[[Task, int], TaskScene | OpeningScene],
        options: DesktopOptions | None = None,
        connect: Callable[[DesktopSession], Awaitable[DesktopComputer]] = LocalComputer.open,
        *,
        tree: bool = False,
        video: Path | None = None,
    ) -> None:
        self._make = scene
        self._tree = tree
        self._video = video
        self._options = options or DesktopOptions()
        self._connect = connect
        self._session: DesktopSession | None = None
        self._computer: DesktopComputer | None = None
        self._done: list[Action] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        await self._disconnect()
        if self._session is None:
            self._session = await DesktopSession.start(self._options)
        else:
            await self._session.reset()
        self._done = []
        self._scene = self._make(task, seed)
        if self._video is not None:
            await record(self._session, file_of(self._video, task.task_id, seed))
        if isinstance(self._scene, OpeningScene):
            await self._scene.open(self._session)
        self._computer = await self._connect(self._session)
        if not isinstance(self._scene, OpeningScene):
            await self._scene.prepare(LocalStage(self._session, self._computer))
        return await self._observed(await self._computer.look())

    async def step(self, action: Action) -> Observation:
        assert self._computer is not None
        shown = await self._computer.act([action])
        self._done.append(action)
        return await self._observed(await self._changed(shown))

    async def _changed(self, shown: ShownScreen) -> ShownScreen:
        """The screen, after what happens beside the agent's doing."""
        if isinstance(self._scene, ChangingScene) and await self._scene.after(self.stage, self._done):
            assert self._computer is not None
            return await self._computer.look()
        return shown

    async def answers(self) -> Observation | None:
        """See eval.desktop.AnsweringDesktop."""
        assert self._computer is not None
        return await shown_if_it_answers(self._computer, self._observed)

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools that an agent can call here (eval.desktops.tools)."""
        return tuple(TOOLS)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        """Does a call of a tool; gives its result in words, and the screen after it. Raises ActionRefused."""
        assert self._session is not None
        assert self._computer is not None
        result = await call(self._session, name, arguments)
        return result, await self._observed(await self._changed(await self._computer.look()))

    async def follow(self) -> AsyncGenerator[tuple[Observation, Action, Observation]]:
        """See eval.desktop.PersonDesktop. The person works in the browser, at a page of this machine."""
        from eval.desktops.person.input_recorder import InputRecorder

        assert self._session is not None
        assert self._computer is not None
        view = await start_view(self._session, control=True)
        shown = await self._observed(await self._computer.look())
        watcher = InputRecorder(self._session.place)
        gatherer = Gatherer(shown.screen)
        print(f"work at {view.url}\npassword: {view.password}\n{HOW_TO_END}", flush=True)
        came = time.monotonic()
        try:
            while True:
                event = None
                try:
                    event = await asyncio.wait_for(watcher.events.get(), POLL_S)
                except TimeoutError:
                    self._session.check()
                    actions = gatherer.rest((time.monotonic() - came) * 1000)
                    if not gatherer.waiting and not actions and time.monotonic() - came > IDLE_S:
                        shown, came = await self._observed(await self._computer.look()), time.monotonic()
                else:
                    if event is None:
                        raise await self._session.failed()
                    actions, came = gatherer.feed(event), time.monotonic()
                for action in actions:
                    after = shown
                    if action.type not in (ActionType.DONE, ActionType.FAIL):
                        after = await self._observed(await self._computer.look())
                    self._done.append(action)
                    yield shown, action, after
                    shown = after
        finally:
            watcher.stop()
            await self._session.end_views()

    async def score(self) -> Score:
        """Releases what is held, waits until the programs have done what they were told, then judges.

        The speed of the machine decides no score: a command that was typed right before `done` ends first. Who works on
        for longer than WORK_S, waits for a processor left out, is judged as it is then. Raises what
        `DesktopSession.check` raises.
        """
        assert self._session is not None
        assert self._computer is not None
        await self._computer.release()
        await _rested(self._session)
        self._session.check()
        assert not isinstance(self._scene, OpeningScene), "nothing judges this scene"
        return await self._scene.judge(LocalStage(self._session, self._computer), self._done)

    @property
    def stage(self) -> DesktopStage:
        """What the scene prepares and judges, between reset and close."""
        assert self._session is not None
        assert self._computer is not None
        return LocalStage(self._session, self._computer)

    async def close(self) -> None:
        await self._disconnect()
        session, self._session = self._session, None
        if session is not None:
            await session.stop()

    async def _observed(self, shown: ShownScreen) -> Observation:
        assert self._computer is not None
        tree = await self._computer.accessibility() if self._tree else None
        marks = {} if tree is None else marks_of(tree)
        expected = None
        if not isinstance(self._scene, OpeningScene):
            expected = self._scene.expected(self._done, tree)
        info = {} if shown.pointer is None else {"pointer": shown.pointer}
        return Observation(shown.image, shown.image.size, marks, expected, info=info, tree=tree)

    async def _disconnect(self) -> None:
        computer, self._computer = self._computer, None
        if computer is not None:
            await computer.close()


async def _rested(session: DesktopSession) -> None:
    """Waits until every program of the desktop has slept for REST_S, at most WORK_S in which none of them waits for a
    processor, and HANGS_S in all. Where the kernel does not tell, it does not wait."""
    watch, clock = SleepWatch(session.drawing), asyncio.get_running_loop().time
    if not watch.works:
        return
    served = await asyncio.to_thread(ServedTime, watch)
    until, since = clock() + HANGS_S, clock()
    while watch.works and clock() < until and clock() - since < REST_S:
        if not await asyncio.to_thread(watch.asleep):
            since = clock()
            if await asyncio.to_thread(served.seconds) > WORK_S:
                return
        await asyncio.sleep(LOOK_S)
