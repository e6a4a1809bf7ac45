"""The windows of a display, as its window manager lists them (EWMH)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import xcffib
from xcffib.xproto import EventMask

from eval.desktops.display.connection import SOURCE_PAGER, XConnection

TO_MANAGER: Final = EventMask.SubstructureRedirect | EventMask.SubstructureNotify
STATIC_GRAVITY: Final = 10
ASKED_LIMIT: Final = 0.3  # seconds that a window manager has to move or resize a window
_X, _Y, _WIDTH, _HEIGHT = 1 << 8, 1 << 9, 1 << 10, 1 << 11  # which fields _NET_MOVERESIZE_WINDOW sets


@dataclass(frozen=True)
class TopWindow:
    """A window that the window manager lists. `box`: left, top, width, height in pixels of the screen."""

    number: int
    title: str
    classes: str
    pid: int
    box: tuple[int, int, int, int]


class Windows:
    """Looks at windows, and asks the window manager to change them."""

    def __init__(self, connection: XConnection) -> None:
        self.connection = connection

    def listed(self, *, stacked: bool = False) -> list[TopWindow]:
        """Every window, the oldest first; `stacked`: as they lie above one another, the lowest first."""
        out = []
        name = "_NET_CLIENT_LIST_STACKING" if stacked else "_NET_CLIENT_LIST"
        for number in self.connection.numbers(self.connection.root, name):
            try:
                shape = self.connection.x.core.GetGeometry(number).reply()
                at = self.connection.x.core.TranslateCoordinates(number, self.connection.root, 0, 0).reply()
            except xcffib.Error:
                continue  # it closed meanwhile
            title = self.connection.text(number, "_NET_WM_NAME") or self.connection.text(number, "WM_NAME")
            pid = self.connection.numbers(number, "_NET_WM_PID")
            out.append(
                TopWindow(
                    number,
                    title,
                    self.connection.text(number, "WM_CLASS"),
                    pid[0] if pid else 0,
                    (int(at.dst_x), int(at.dst_y), int(shape.width), int(shape.height)),
                )
            )
        return out

    def outer(self, window: TopWindow) -> tuple[int, int, int, int]:
        """The box of a window with the frame that the window manager draws around it."""
        sides = self.connection.numbers(window.number, "_NET_FRAME_EXTENTS")
        left, right, top, bottom = sides if len(sides) == 4 else (0, 0, 0, 0)
        x, y, width, height = window.box
        return x - left, y - top, width + left + right, height + top + bottom

    def find(self, name: str | None, *, by_class: bool = False, strict: bool = False) -> TopWindow | None:
        """The window of this title, else one whose title or class holds the text in any case; None: the active one.

        by_class looks at the class only; strict takes no part of a title.
        """
        windows = self.listed()
        if name is None:
            active = self.connection.active_window()
            return next((window for window in windows if window.number == active), None)
        wanted = name.lower()
        texts = [(window, [window.classes] if by_class else [window.title, window.classes]) for window in windows]
        for window, names in texts:
            if name in names or (by_class and wanted in names[0].lower().split()):
                return window
        if strict:
            return None
        return next((window for window, names in texts if any(wanted in text.lower() for text in names)), None)

    def _ask(self, window: TopWindow, name: str, values: list[int]) -> None:
        self.connection.message(window.number, name, values, to=self.connection.root, mask=TO_MANAGER)
        self.connection.sync()

    def focus(self, window: TopWindow, limit: float = 1.0) -> bool:
        """Raises a window and gives it the focus. Returns whether it has it within `limit` seconds."""
        self._ask(window, "_NET_ACTIVE_WINDOW", [SOURCE_PAGER])
        end = time.monotonic() + limit
        while self.connection.active_window() != window.number:
            if time.monotonic() > end:
                return False
            self.connection.wait_event(0.005)
        return True

    def close(self, window: TopWindow) -> None:
        """Asks the program to close a window; it may ask the user first."""
        self._ask(window, "_NET_CLOSE_WINDOW", [0, SOURCE_PAGER])

    def move(self, window: TopWindow, x: int, y: int) -> None:
        """Puts the left upper corner of a window's content at a pixel."""
        self._ask(window, "_NET_MOVERESIZE_WINDOW", [STATIC_GRAVITY | _X | _Y | SOURCE_PAGER << 12, x, y])
        self._wait_box(window, 0, (x, y))

    def resize(self, window: TopWindow, width: int, height: int) -> None:
        """Gives a window's content a size in pixels."""
        flags = STATIC_GRAVITY | _WIDTH | _HEIGHT | SOURCE_PAGER << 12
        self._ask(window, "_NET_MOVERESIZE_WINDOW", [flags, 0, 0, width, height])
        self._wait_box(window, 2, (width, height))

    def _wait_box(self, window: TopWindow, first: int, wanted: tuple[int, int]) -> None:
        """Waits until two numbers of the window's box are so: the next request would start from the old ones. A window
        manager may refuse, as below a program's least size, so the wait ends."""
        end = time.monotonic() + ASKED_LIMIT
        while time.monotonic() < end:
            box = next((other.box for other in self.listed() if other.number == window.number), None)
            if box is None or box[first : first + 2] == wanted:
                return
            self.connection.wait_event(0.005)
