"""The pointer of a display: clicks, drags and the wheel, with the keys that are held meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from eval.actions import Action
from eval.actions.geometry import Screen
from eval.desktops.display.connection import XConnection
from eval.desktops.display.keyboard import XKeyboard
from eval.desktops.display.read_proof import ReadProof

BUTTON_PRESS, BUTTON_RELEASE, MOTION = 4, 5, 6  # X11 protocol, event numbers
BUTTON_NUMBERS: Final = {"left": 1, "middle": 2, "right": 3, "back": 8, "forward": 9}
WHEEL: Final = {"up": 4, "down": 5, "left": 6, "right": 7}
SCROLL_CLICKS: Final = 5  # where an action names no amount
CLICK_PIXELS: Final = 100  # about what programs scroll per click of the wheel
DRAG_STEPS: Final = 12  # points of a drag between two points of its path: a program takes one jump for no drag


class XPointer:
    """Moves and presses through XTest on an open connection.

    proof  of what the programs have read: the pointer waits for it where it would take a click with it
    pause  waits for so many seconds; it raises what ends a drag in its middle
    """

    def __init__(
        self, connection: XConnection, keyboard: XKeyboard, proof: ReadProof, pause: Callable[[float], None]
    ) -> None:
        self.connection = connection
        self.keyboard = keyboard
        self.proof = proof
        self._pause = pause
        self.screen = Screen(*connection.size)
        self.held: list[int] = []  # buttons, in the order in which they were pressed

    def position(self) -> tuple[int, int]:
        """Where the pointer is, in pixels."""
        reply = self.connection.x.core.QueryPointer(self.connection.root).reply()
        return int(reply.root_x), int(reply.root_y)

    def release_all(self) -> None:
        """Releases every button that is down, whoever pressed it."""
        mask = self.connection.x.core.QueryPointer(self.connection.root).reply().mask
        down = [button for button in range(1, 6) if mask >> (7 + button) & 1]
        for button in dict.fromkeys([*self.held, *down]):
            self.button(BUTTON_RELEASE, button)
        self.held.clear()

    def _motion(self, x: int, y: int) -> None:
        self.connection.xtest.FakeInput(MOTION, 0, 0, self.connection.root, x, y, 0)

    def move(self, action: Action) -> None:
        if action.point is not None:
            self.proof.read()
            self._motion(*self.screen.from_norm(*action.point))
            if self.held:
                self.proof.followed()  # a corner of a drag

    def button(self, kind: int, button: int) -> None:
        self.connection.xtest.FakeInput(kind, button, 0, self.connection.root, 0, 0, 0)
        if kind == BUTTON_PRESS:
            self.held.append(button)
        else:
            self.proof.unread = True
            if button in self.held:
                self.held.remove(button)

    @contextmanager
    def keys_held(self, action: Action) -> Iterator[None]:
        """Holds the keys of `modifiers`, and releases those that were not held before."""
        pressed: list[str] = []
        try:
            for name in action.modifiers or ():
                if self.keyboard.code_of(name, combined=True)[0] not in self.keyboard.held:
                    self.keyboard.press(name, combined=True)
                    pressed.append(name)
            yield
        finally:
            for name in reversed(pressed):
                self.keyboard.release(name, combined=True)

    def press_next(self, action: Action) -> None:
        """A button is pressed next: waits where the program would lose it."""
        self.proof.pace.click(*(self.screen.from_norm(*action.point) if action.point else self.position()))

    def click(self, action: Action, button: int, count: int) -> None:
        self.move(action)
        with self.keys_held(action):
            for _ in range(count):
                self.press_next(action)
                self.button(BUTTON_PRESS, button)
                self.button(BUTTON_RELEASE, button)

    def drag(self, action: Action) -> None:
        """Moves along the path with the button down. The program gets every corner, and points between them."""
        corners = [*([action.point] if action.point else []), *(action.path or ()), action.end or (0.0, 0.0)]
        pixels = [self.screen.from_norm(x, y) for x, y in corners]
        if action.point is None:
            pixels.insert(0, self.position())
        button = BUTTON_NUMBERS[action.button or "left"]
        legs = [_between(*pair) for pair in itertools.pairwise(pixels)]
        pause = (action.duration or 0.0) / sum(map(len, legs))
        self.proof.read()
        with self.keys_held(action):
            self._motion(*pixels[0])
            self.button(BUTTON_PRESS, button)
            try:
                self.proof.wait_read()
                for leg in legs:
                    for x, y in leg:
                        self._motion(x, y)
                        if pause:
                            self._pause(pause)
                    self.proof.followed()  # also at the end: what it is dropped on must have answered
            finally:
                self.button(BUTTON_RELEASE, button)

    def scroll(self, action: Action) -> None:
        direction = action.direction or "down"
        clicks = action.amount or SCROLL_CLICKS
        if action.distance is not None:
            side = self.connection.size[direction in ("up", "down")]
            clicks = action.distance * side / CLICK_PIXELS
        self.move(action)
        with self.keys_held(action):
            for _ in range(max(1, round(clicks))):
                self.button(BUTTON_PRESS, WHEEL[direction])
                self.button(BUTTON_RELEASE, WHEEL[direction])


def _between(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """The points from after `start` up to `end`, at most DRAG_STEPS, none twice."""
    steps = min(DRAG_STEPS, max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1))
    return [
        (round(start[0] + (end[0] - start[0]) * k / steps), round(start[1] + (end[1] - start[1]) * k / steps))
        for k in range(1, steps + 1)
    ]
