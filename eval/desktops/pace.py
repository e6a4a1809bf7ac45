"""The pace of programs that lose a press of a button which is still down from the press before.

Galculator's buttons are toggle buttons that come up 100 ms after a press, and a second press in that time only raises
them: of 44 it gets one 4, of 4444 two. That holds for keys, which press its buttons, and for clicks. A person's
fingers are slower, so nobody sees it. No program tells when it is ready for the next press, so those that were found to
lose one are named here with their time; all others get every event at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from eval.desktops.connection import XConnection
from eval.desktops.keysyms import NAMED_KEYS

# A word of the window's class -> seconds after which a button takes the next press. Its timer: 100 ms
SLOW: Final = {"galculator": 0.105}
UP: Final = 1.0  # seconds after it was read in which every program's button has come up
NEAR: Final = 24  # pixels within which two clicks may be on the same button
# Keys that press the same button
_SAME: Final = {
    **{NAMED_KEYS[f"num{digit}"]: ord("0") + digit for digit in range(10)},
    **{NAMED_KEYS["enter"]: ord("="), NAMED_KEYS["decimal"]: ord("."), ord(","): ord(".")},
}


class Pace:
    """Waits before a press that its program would lose. Tell it of every press, just before it is sent.

    prove  waits until the programs have read all that was sent
    """

    def __init__(self, connection: XConnection, prove: Callable[[], None]) -> None:
        self.connection = connection
        self._prove = prove
        self._keys: set[int] = set()  # pressed since all buttons were last known to be up
        self._clicks: list[tuple[int, int]] = []
        self._pressed = 0.0  # when the last of them was sent
        self._read = 0.0  # when the program had read it, if that is later
        self._hold: float | None = None  # of the program that gets the action; None: not asked yet

    def begin(self) -> None:
        """An action begins: another window may be the active one."""
        self._hold = None

    def rested(self) -> None:
        """The program has read all that was sent, as every program sleeps."""
        self._read = time.monotonic()

    def key(self, symbol: int) -> None:
        """A key with this symbol is pressed next."""
        symbol = _SAME.get(symbol, symbol)
        self._before(symbol in self._keys or bool(self._clicks), self.connection.active_window)
        self._keys.add(symbol)

    def click(self, x: int, y: int) -> None:
        """A button of the mouse is pressed next, at this pixel, where the pointer is."""
        near = any(abs(x - other[0]) <= NEAR and abs(y - other[1]) <= NEAR for other in self._clicks)
        self._before(near or bool(self._keys), self.connection.window_at_pointer)
        self._clicks.append((x, y))

    def _before(self, again: bool, window: Callable[[], int | None]) -> None:
        """Waits where the button that is pressed next may still be down."""
        if self._read > self._pressed and time.monotonic() - self._read > UP:
            self._forget()
        elif again:
            if self._hold is None:
                self._hold = self._hold_of(window())
            if self._hold:
                self._wait(self._hold)
            self._forget()
        self._pressed = time.monotonic()

    def _forget(self) -> None:
        self._keys.clear()
        self._clicks.clear()

    def _wait(self, hold: float) -> None:
        if self._read <= self._pressed:
            self._prove()
            self._read = time.monotonic()
        left = self._read + hold - time.monotonic()
        if left > 0:
            time.sleep(left)
        self._prove()  # its timer is due: it has been at work since

    def _hold_of(self, window: int | None) -> float:
        name = self.connection.text(window, "WM_CLASS").lower() if window is not None else ""
        return next((seconds for word, seconds in SLOW.items() if word in name), 0.0)
