"""A phone as the rollout uses it: a scene on a free one of some phones, and its judgement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from eval.accessibility.tree import Tree
from eval.accessibility.visible import marks_of
from eval.actions import Action
from eval.desktop import DesktopGone, Expected, Observation, Score, Task
from eval.desktops.android.phone import Phone
from eval.desktops.computer import DesktopPool, ShownScreen, shown_if_it_answers


class PhoneScene(Protocol):
    """One task on a phone, drawn from its seed."""

    async def prepare(self, phone: Phone) -> None:
        """Makes the start state: takes away what an earlier episode left, and opens the app. Raises SetupFailed."""
        ...

    def expected(self, done: Sequence[Action], tree: Tree | None) -> Expected | None:
        """What an expert does after the actions `done`, on the screen of `tree`; None where it does not know."""
        ...

    async def judge(self, phone: Phone, done: Sequence[Action]) -> Score:
        """Judges the state of the phone, as its own commands tell it, never a picture. done: the agent's actions."""
        ...


class PhoneDesktop:
    """eval.desktop.Desktop over a free one of some phones. `scene` makes the scene of a task from its seed.

    tree      whether each observation has the accessibility tree, and marks made of it
    rotation  how the phone is held, in degrees: 0, 90, 180 or 270
    """

    def __init__(
        self, scene: Callable[[Task, int], PhoneScene], phones: DesktopPool, *, tree: bool = True, rotation: int = 0
    ) -> None:
        self._make = scene
        self._phones = phones
        self._tree = tree
        self._rotation = rotation
        self._serial: str | None = None
        self._phone: Phone | None = None
        self._done: list[Action] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        """Waits for a free phone, as long as the rollout allows."""
        if self._serial is None:
            self._serial = await self._phones.waiting.get()
        if self._phone is None:
            self._phone = await Phone.connect(self._serial)
        self._done = []
        self._scene = self._make(task, seed)
        await self._phone.prepare(self._rotation)
        await self._scene.prepare(self._phone)
        return await self._observed(await self._phone.look())

    async def step(self, action: Action) -> Observation:
        shown = await self._here().act([action])
        self._done.append(action)
        return await self._observed(shown)

    async def answers(self) -> Observation | None:
        """See eval.desktop.AnsweringDesktop."""
        return await shown_if_it_answers(self._here(), self._observed)

    async def score(self) -> Score:
        return await self._scene.judge(self._here(), self._done)

    async def close(self) -> None:
        phone, self._phone = self._phone, None
        serial, self._serial = self._serial, None
        try:
            if phone is not None:
                await phone.close()
        finally:
            if serial is not None:
                self._phones.waiting.put_nowait(serial)

    def _here(self) -> Phone:
        if self._phone is None:
            raise DesktopGone("the phone has been given back")
        return self._phone

    async def _observed(self, shown: ShownScreen) -> Observation:
        tree = await self._here().accessibility() if self._tree else None
        marks = {} if tree is None else marks_of(tree)
        return Observation(shown.image, shown.image.size, marks, self._scene.expected(self._done, tree), tree=tree)
