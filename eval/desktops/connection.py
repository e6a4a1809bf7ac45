"""One open connection to an X display: events, atoms, properties, and the wait until the screen is settled.

Not safe for threads: one caller at a time. A display that is gone raises DesktopGone.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import xcffib
import xcffib.damage
import xcffib.xproto
import xcffib.xtest

from eval.desktop import DesktopGone
from eval.desktops.place import Place

QUIET: Final = 0.018  # seconds without damage: a frame of GTK is 16.7 ms; after 10 ms pictures still changed
FIRST: Final = 0.05  # seconds to wait for a first damage, where no program proves that it has read its events
LIMIT: Final = 2.0  # seconds; a picture that never rests, as a video, is taken as it is then
PING_LIMIT: Final = 0.5  # seconds for a program's answer to a ping; one that is busy answers later or never
# Programs that answer a ping from another process than the one that draws, so that the answer proves nothing
# (measured with Chromium: the text that was typed came after the answer)
ANSWERED_ELSEWHERE: Final = ("chrom", "firefox", "navigator", "electron", "code", "brave", "edge", "webkit")
SOURCE_PAGER: Final = 2  # the sender of a window manager's message is a tool that acts for the user (EWMH)
_XAUTHORITY: Final = threading.Lock()


@contextmanager
def reachable(display: str) -> Iterator[None]:
    """Turns the errors of a lost connection into DesktopGone."""
    try:
        yield
    except xcffib.ConnectionException as error:
        raise DesktopGone(f"the X display {display} does not answer any more: {error}") from None
    except xcffib.XcffibException as error:
        if isinstance(error, xcffib.Error):
            raise
        raise DesktopGone(f"the X display {display} does not answer any more: {error}") from None


def _connect(place: Place) -> Any:
    """libxcb reads the cookie from the file that XAUTHORITY names, in the environment of this process."""
    with _XAUTHORITY:
        before = os.environ.get("XAUTHORITY")
        os.environ["XAUTHORITY"] = str(place.xauthority)
        try:
            return xcffib.connect(place.display)
        finally:
            if before is None:
                del os.environ["XAUTHORITY"]
            else:
                os.environ["XAUTHORITY"] = before


class XConnection:
    """An X connection with the extensions that the executor needs. Raises DesktopGone when it cannot be opened."""

    def __init__(self, place: Place) -> None:
        self.display = place.display
        with reachable(place.display):
            self.x = _connect(place)
            setup = self.x.get_setup()
            self.screen = setup.roots[self.x.pref_screen]
            self.keycodes = range(setup.min_keycode, setup.max_keycode + 1)
            self.root = int(self.screen.root)
            self.size = (int(self.screen.width_in_pixels), int(self.screen.height_in_pixels))
            self.xtest = self.x(xcffib.xtest.key)
            self.damage = self.x(xcffib.damage.key)
            self.damage.QueryVersion(1, 1).reply()
            # the answers to pings come to the root window
            self.x.core.ChangeWindowAttributes(
                self.root, xcffib.xproto.CW.EventMask, [xcffib.xproto.EventMask.SubstructureNotify]
            )
            self.damage.Create(self.x.generate_id(), self.root, xcffib.damage.ReportLevel.NonEmpty)
            self.x.flush()
        self._damage_id: int | None = None
        self._atoms: dict[str, int] = {}
        self._serial = 0
        self._answered: set[int] = set()
        self.last_damage = 0.0

    def close(self) -> None:
        """Closes the connection; also one that is lost already."""
        self.x.disconnect()

    def sync(self) -> None:
        """Returns when the X server has carried out everything that was sent."""
        self.x.core.GetInputFocus().reply()

    def atom(self, name: str) -> int:
        """The number of a name, asked once."""
        if name not in self._atoms:
            self._atoms[name] = int(self.x.core.InternAtom(False, len(name), name).reply().atom)
        return self._atoms[name]

    def numbers(self, window: int, name: str) -> list[int]:
        """The 32-bit values of a window's property; empty when it has none, or when the window is gone."""
        try:
            reply = self.x.core.GetProperty(False, window, self.atom(name), 0, 0, 1 << 16).reply()
        except xcffib.Error:
            return []
        return [int(number) for number in reply.value.to_atoms()] if reply.format == 32 else []

    def text(self, window: int, name: str) -> str:
        """A text property; empty when there is none."""
        try:
            reply = self.x.core.GetProperty(False, window, self.atom(name), 0, 0, 1 << 16).reply()
        except xcffib.Error:
            return ""
        return bytes(reply.value.buf()).decode("utf-8", "replace").replace("\0", " ").strip()

    def message(self, window: int, name: str, values: list[int], *, to: int, mask: int) -> None:
        """Sends a ClientMessage of five 32-bit values about `window` to the window `to`."""
        data = xcffib.xproto.ClientMessageData.synthetic([*values, 0, 0, 0, 0, 0][:5], "5I")
        event = xcffib.xproto.ClientMessageEvent.synthetic(32, window, self.atom(name), data)
        self.x.core.SendEvent(False, to, mask, event.pack())

    # Events

    def pump(self) -> None:
        """Reads every event that has come, without waiting."""
        while True:
            try:
                event = self.x.poll_for_event()
            except xcffib.Error:
                continue  # the answer to a request that asked for none, as to a window that is gone
            if event is None:
                return
            if isinstance(event, xcffib.damage.NotifyEvent):
                self.last_damage = time.monotonic()
                self.damage.Subtract(event.damage, 0, 0)
                self.x.flush()
            elif isinstance(event, xcffib.xproto.ClientMessageEvent) and event.type == self.atom("WM_PROTOCOLS"):
                values = event.data.data32
                if values[0] == self.atom("_NET_WM_PING"):
                    self._answered.add(int(values[1]))

    def wait_event(self, seconds: float) -> None:
        """Waits until the display has sent something, at most so long, and reads it."""
        self.x.flush()
        self.pump()
        if seconds > 0:
            select.select([self.x.get_file_descriptor()], [], [], seconds)
            self.pump()

    def active_window(self) -> int | None:
        """The window that has the focus, as the window manager says; None without one."""
        windows = self.numbers(self.root, "_NET_ACTIVE_WINDOW")
        return windows[0] if windows and windows[0] else None

    def ping(self, limit: float = PING_LIMIT) -> bool | None:
        """Whether the program of the active window has read every event sent so far.

        True: it answered, and it answers in the order of its events. False: not within `limit` seconds. None: there is
        no such window, or its program answers no pings, or answers them from a process that does not draw.
        """
        window = self.active_window()
        if window is None or self.atom("_NET_WM_PING") not in self.numbers(window, "WM_PROTOCOLS"):
            return None
        if any(name in self.text(window, "WM_CLASS").lower() for name in ANSWERED_ELSEWHERE):
            return None
        self._serial += 1
        stamp = 0x40000000 + self._serial
        ping = [self.atom("_NET_WM_PING"), stamp, window]
        self.message(window, "WM_PROTOCOLS", ping, to=window, mask=0)
        end = time.monotonic() + limit
        while (left := end - time.monotonic()) > 0:
            self.wait_event(min(left, 0.05))
            if stamp in self._answered:
                self._answered.clear()
                return True
        return False

    def settle(self, since: float, *, quiet: float = QUIET, first: float = FIRST, limit: float = LIMIT) -> bool:
        """Waits until the screen rests: the active program has read its events, and for `quiet` s nothing was drawn.

        since    time.monotonic() of the action
        first    how long to wait for a first damage when no program answers a ping
        Returns False when the screen did not rest within `limit` seconds.
        """
        end = time.monotonic() + limit
        self.sync()
        answered = self.ping(min(PING_LIMIT, limit))
        start = time.monotonic()
        while True:
            now = time.monotonic()
            if answered or self.last_damage >= since:
                rest = max(start, self.last_damage) + quiet - now
            else:
                rest = start + first - now
            if rest <= 0:
                return True
            if now >= end:
                return False
            self.wait_event(min(rest, end - now))
