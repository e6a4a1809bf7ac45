"""A window that writes down what it receives: an X client of its own, over a connection of its own."""

from __future__ import annotations

from typing import Any

import xcffib
import xcffib.xproto
from xcffib.xproto import CW, EventMask

from tests.support.plain_desktop import PlainDesktop, wait_until

NAMES = {2: "key press", 3: "key release", 4: "press", 5: "release", 6: "motion"}


class EventWindow:
    """A window over the whole screen. `read` gives every event so far: (name, detail, x, y), of motions detail 0."""

    def __init__(self, desktop: PlainDesktop) -> None:
        import os

        before = os.environ.get("XAUTHORITY")
        os.environ["XAUTHORITY"] = str(desktop.place.xauthority)
        try:
            self.x: Any = xcffib.connect(desktop.place.display)
        finally:
            if before is None:
                del os.environ["XAUTHORITY"]
            else:
                os.environ["XAUTHORITY"] = before
        screen = self.x.get_setup().roots[0]
        width, height = screen.width_in_pixels, screen.height_in_pixels
        self.root = screen.root
        self.window = self.x.generate_id()
        mask = (
            EventMask.ButtonPress
            | EventMask.ButtonRelease
            | EventMask.PointerMotion
            | EventMask.KeyPress
            | EventMask.KeyRelease
            | EventMask.StructureNotify
        )
        values = [screen.black_pixel, 1, mask]
        self.x.core.CreateWindow(
            screen.root_depth, self.window, screen.root, 0, 0, width, height, 0, 1, screen.root_visual,
            CW.BackPixel | CW.OverrideRedirect | CW.EventMask, values,
        )  # fmt: skip
        self.x.core.MapWindow(self.window)
        self.x.core.SetInputFocus(2, self.window, 0)
        self.x.flush()
        self.events: list[tuple[str, int, int, int, int]] = []
        self.mapped = False
        wait_until(self._is_mapped)
        self.x.core.SetInputFocus(2, self.window, 0)
        self.x.core.GetInputFocus().reply()

    def _is_mapped(self) -> bool:
        self.read()
        return self.mapped

    def read(self) -> list[tuple[str, int, int, int]]:
        """Everything that came so far, after all that the X server had to send."""
        self.x.core.GetInputFocus().reply()
        while (event := self.x.poll_for_event()) is not None:
            if isinstance(event, xcffib.xproto.MapNotifyEvent):
                self.mapped = True
            kind = event.response_type & 0x7F
            if kind in NAMES:
                detail = 0 if kind == 6 else event.detail
                self.events.append((NAMES[kind], detail, event.event_x, event.event_y, event.state))
        return [event[:4] for event in self.events]

    def states(self) -> list[tuple[str, int, int]]:
        """(name, detail, modifiers and buttons that were down before it)."""
        self.read()
        return [(name, detail, state) for name, detail, _, _, state in self.events]

    def clear(self) -> None:
        """Forgets what came so far."""
        self.read()
        self.events.clear()

    def keysym(self, keycode: int) -> int:
        """The unshifted keysym of a keycode."""
        return int(self.x.core.GetKeyboardMapping(keycode, 1).reply().keysyms[0])

    def close(self) -> None:
        """Closes the window."""
        self.x.disconnect()
