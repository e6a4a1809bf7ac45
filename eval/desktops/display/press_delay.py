"""The pace of programs that lose a press of a button which is still down from the press before.

Galculator's buttons are toggle buttons that come up 100 ms after a press, and a second press in that time only raises
them: of 44 it gets one 4, of 4444 two. That holds for keys, which press its buttons, and for clicks. A person's
fingers are slower, so nobody sees it. No program tells when it is ready for the next press, so those that were found to
lose one are named here with their time; all others get every event at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from eval.desktops.display.keysyms import NAMED_KEYS

if TYPE_CHECKING:
    from eval.desktops.display.connection import XConnection

# A word of the window's class -> seconds after which a button takes the next press. Its timer: 100 ms
SLOW: Final = {"galculator": 0.105}
UP: Final = 1.0  # seconds after it was read in which every program's button has come up
NEAR: Final = 24  # pixels within which two clicks may be on the same button
# Keys that press the same button
_SAME: Final = {
    **{NAMED_KEYS[f"num{digit}"]: ord("0") + digit for digit in range(10)},
    **{NAMED_KEYS["enter"]: ord("="), NAMED_KEYS["decimal"]: ord("."), ord(","): ord(".")},
}

K = TypeVar("K")


class PressDelay:
    """Waits before a press that its program would lose. Tell it of every press, just before it is sent.

    prove  waits until the programs have read all that was sent
    """

    def __init__(self, connection: XConnection, prove: Callable[[], None]) -> None:
        self.connection = connection
        self._prove = prove
        # What was pressed and may still be down -> when its program is known to have read the press
        self._keys: dict[int, float | None] = {}
        self._clicks: dict[tuple[int, int], float | None] = {}
        self._hold: float | None = None  # of the program that gets the action; None: not asked yet
        self._slow = True  # whether a window of such a program is open

    def begin(self) -> None:
        """An action begins: another window may be the active one."""
        self._hold = None

    def rested(self) -> None:
        """The programs have read all that was sent."""
        self._keys, self._clicks = _may_be_down(self._keys), _may_be_down(self._clicks)

    def key(self, symbol: int) -> None:
        """A key with this symbol is pressed next."""
        symbol = _SAME.get(symbol, symbol)
        if self._clicks or symbol in self._keys:  # nobody knows which button lies at a pixel
            self._before([symbol], list(self._clicks), self.connection.active_window)
        self._keys[symbol] = None

    def click(self, x: int, y: int) -> None:
        """A button of the mouse is pressed next, at this pixel, where the pointer is."""
        near = [pixel for pixel in self._clicks if abs(x - pixel[0]) <= NEAR and abs(y - pixel[1]) <= NEAR]
        if self._keys or near:
            self._before(list(self._keys), near, self.connection.window_at_pointer)
        self._clicks[x, y] = None

    def _before(self, keys: list[int], clicks: list[tuple[int, int]], window: Callable[[], int | None]) -> None:
        """Waits where one of these, which may be the button that is pressed next, may still be down."""
        pressed = [self._keys.pop(each) for each in keys if each in self._keys]
        pressed += [self._clicks.pop(each) for each in clicks]
        if all(read is not None and time.monotonic() - read > UP for read in pressed) or not self._any_slow():
            return
        if self._hold is None:
            here = window()
            self._hold = _hold_of("" if here is None else self.connection.text(here, "WM_CLASS").lower())
        if self._hold:
            if None in pressed:
                self._prove()
                self.rested()
            last = time.monotonic() if None in pressed else max(read or 0.0 for read in pressed)
            if (left := last + self._hold - time.monotonic()) > 0:
                time.sleep(left)
            self._prove()  # its timer is due: it has been at work since

    def _any_slow(self) -> bool:
        """Asked anew only where a window came or went: which window gets a press takes several questions."""
        self.connection.pump()
        if self.connection.clients_changed:
            self.connection.clients_changed = False
            names = self.connection.client_classes()
            self._slow = not names or any(map(_hold_of, names))  # no list: there is no window manager
        return self._slow


def _hold_of(name: str) -> float:
    """Seconds, for a window's class in lower case."""
    return next((seconds for word, seconds in SLOW.items() if word in name), 0.0)


def _may_be_down(pressed: dict[K, float | None]) -> dict[K, float | None]:
    """Presses that are read by now, without those of UP s ago."""
    now = time.monotonic()
    return {each: read or now for each, read in pressed.items() if read is None or now - read <= UP}
