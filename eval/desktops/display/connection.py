"""One open connection to an X display: events, atoms, properties, and the wait until the screen is settled.

Not safe for threads: one caller at a time. A display that is gone raises DesktopGone.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import xcffib
import xcffib.damage
import xcffib.xfixes
import xcffib.xproto
import xcffib.xtest

from eval.desktop import DesktopGone
from eval.desktops.display.running_desktop import RunningDesktop

QUIET: Final = 0.018  # seconds without damage: a frame of GTK is 16.7 ms; after 10 ms pictures still changed
CALM: Final = 0.004  # seconds without damage after which the picture is likely the last one
FIRST: Final = 0.05  # seconds to wait for a first damage, where no program proves that it has read its events
PROOF: Final = 0.034  # seconds in which the programs may fall asleep; after that the rule of quiet counts too
WAITED: Final = 0.002  # seconds for which a program may wait for a processor, as it does on an idle machine too
STEP: Final = 0.00025  # seconds between two looks at the programs
LIMIT: Final = 2.0  # seconds; a picture that never rests, as a video, is taken as it is then
FOCUS_LIMIT: Final = 0.3  # seconds that the window manager has to give a window that was clicked the keyboard
PING_LIMIT: Final = 0.5  # seconds for a program's answer to a ping; one that is busy answers later or never
# Programs that answer a ping from another process than the one that draws, so that the answer proves nothing
# (measured with Chromium: the text that was typed came after the answer)
ANSWERED_ELSEWHERE: Final = ("chrom", "firefox", "navigator", "electron", "code", "brave", "edge", "webkit")
SOURCE_PAGER: Final = 2  # the sender of a window manager's message is a tool that acts for the user (EWMH)
_XAUTHORITY: Final = threading.Lock()


class ConnectionLost(DesktopGone):
    """The X server closed a connection, or is gone."""


@contextmanager
def reachable(display: str) -> Iterator[None]:
    """Turns errors into DesktopGone: a lost connection, and a refusal that nobody expected, as for want of memory."""
    try:
        yield
    except xcffib.Error as error:
        raise DesktopGone(f"the X display {display} refuses a request: {str(error) or type(error).__name__}") from error
    except (xcffib.ConnectionException, xcffib.XcffibException) as error:
        raise ConnectionLost(f"the X display {display} does not answer any more: {error}") from None


def answers(place: RunningDesktop) -> bool:
    """Whether the X server takes a connection and answers on it."""
    try:
        with reachable(place.display):
            x = connect(place)
            try:
                x.core.GetInputFocus().reply()
            finally:
                x.disconnect()
    except DesktopGone:
        return False
    return True


def connect(place: RunningDesktop) -> Any:
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

    def __init__(self, place: RunningDesktop) -> None:
        self.display = place.display
        with reachable(place.display):
            self.x = connect(place)
            setup = self.x.get_setup()
            self.screen = setup.roots[self.x.pref_screen]
            self.keycodes = range(setup.min_keycode, setup.max_keycode + 1)
            self.root = int(self.screen.root)
            self.size = (int(self.screen.width_in_pixels), int(self.screen.height_in_pixels))
            self.xtest = self.x(xcffib.xtest.key)
            # a program that grabs the X server for itself (XGrabServer) would make every request here wait for ever
            self.xtest.GrabControl(True)
            self.damage = self.x(xcffib.damage.key)
            self.damage.QueryVersion(1, 1).reply()
            # the answers to pings come to the root window, whose properties tell of new windows
            told = xcffib.xproto.EventMask.SubstructureNotify | xcffib.xproto.EventMask.PropertyChange
            self.x.core.ChangeWindowAttributes(self.root, xcffib.xproto.CW.EventMask, [told])
            self.xfixes = self.x(xcffib.xfixes.key)
            self.xfixes.QueryVersion(5, 0).reply()
            self._damage_id, self._part, self._drawn = (self.x.generate_id() for _ in range(3))
            whole = xcffib.xproto.RECTANGLE.synthetic(0, 0, *self.size)
            self.xfixes.CreateRegion(self._part, 0, [])
            self.xfixes.CreateRegion(self._drawn, 1, [whole])
            self.damage.Create(self._damage_id, self.root, xcffib.damage.ReportLevel.NonEmpty)
            self.x.flush()
        self._atoms: dict[str, int] = {}
        self._serial = 0
        self._answered: set[int] = set()
        self.last_damage = 0.0
        self.clients_changed = True  # whether windows came or went since somebody set this to False

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
                self._subtract()
                self.x.flush()
            elif isinstance(event, xcffib.xproto.PropertyNotifyEvent):
                self.clients_changed |= event.atom == self.atom("_NET_CLIENT_LIST")
            elif isinstance(event, xcffib.xproto.ClientMessageEvent) and event.type == self.atom("WM_PROTOCOLS"):
                values = event.data.data32
                if values[0] == self.atom("_NET_WM_PING"):
                    self._answered.add(int(values[1]))

    def _subtract(self) -> None:
        """Takes the damage so far off its object, so that it tells of the next, and adds it to what was drawn."""
        self.damage.Subtract(self._damage_id, 0, self._part)
        self.xfixes.UnionRegion(self._drawn, self._part, self._drawn)

    def drawn(self) -> tuple[int, int, int, int] | None:
        """The box (left, top, width, height; pixels) of all that was drawn since the last call; None: nothing."""
        self._subtract()
        asked = self.xfixes.FetchRegion(self._drawn)
        self.xfixes.SetRegion(self._drawn, 0, [])
        box = asked.reply().extents
        left, top = max(0, int(box.x)), max(0, int(box.y))
        right, bottom = min(self.size[0], box.x + box.width), min(self.size[1], box.y + box.height)
        return (left, top, right - left, bottom - top) if left < right and top < bottom else None

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

    def client_classes(self) -> list[str]:
        """The class of each window that the window manager lists, in lower case."""
        return [self.text(window, "WM_CLASS").lower() for window in self.numbers(self.root, "_NET_CLIENT_LIST")]

    def window_at_pointer(self) -> int | None:
        """The window below the pointer, without the frame that the window manager drew around it; None where no program
        answers for it: above the bare screen, a frame, a menu."""
        core, protocols = self.x.core, self.atom("WM_PROTOCOLS")
        try:
            window = int(core.QueryPointer(self.root).reply().child)
            while window:
                below, answers = core.QueryPointer(window), core.GetProperty(False, window, protocols, 0, 0, 1)
                inner = int(below.reply().child)
                if answers.reply().format:
                    return window
                window = inner
        except xcffib.Error:
            pass  # it closed meanwhile
        return None

    def ping(self, limit: float = PING_LIMIT, window: int | None = None) -> bool | None:
        """Whether the program of a window, else of the active one, has read every event sent so far.

        True: it answered, and it answers in the order of its events. False: not within `limit` seconds. None: there is
        no such window, or its program answers no pings, or answers them from a process that does not draw.
        """
        window = window or self.active_window()
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

    def clicked(self) -> None:
        """Waits until the program below the pointer has read the click that was sent last, where it can prove it.

        A click on a window without the keyboard goes to the window manager first, which holds back what follows; so the
        window has it before it answers the ping only once it is the active one.
        """
        self.sync()
        window = self.window_at_pointer()
        end = time.monotonic() + FOCUS_LIMIT
        while window is not None and self.active_window() != window and (left := end - time.monotonic()) > 0:
            self.wait_event(min(left, 0.002))
        self.ping(LIMIT, window)

    def settle(
        self,
        since: float,
        *,
        quiet: float = QUIET,
        first: float = FIRST,
        limit: float = LIMIT,
        meanwhile: Callable[[], None] | None = None,
        asleep: Callable[[], bool] | None = None,
        processor_wait: Callable[[], Callable[[], float]] | None = None,
    ) -> bool:
        """Waits until the screen rests: every program of the desktop sleeps (`asleep`), or the active program has read
        its events and for `quiet` s nothing was drawn. The time in which a program waited for a processor is
        not counted: on a busy machine a program that is not done draws nothing either.

        since      time.monotonic() of the action
        first      how long to wait for a first damage when no program answers a ping
        meanwhile  work for the time in which the screen must stay as it is, so that it costs none of its own. It is
                   called when nothing was drawn for CALM s, and again when something was drawn since
        Returns False when the screen did not rest within `limit` seconds.
        """
        start = time.monotonic()
        end = start + limit
        self.sync()
        if asleep:
            if self._rests(min(PROOF, limit), meanwhile, asleep):
                return True
            quiet, first = 2 * quiet, 2 * first  # some program works or waits for its next frame
        answered = self.ping(max(0.0, min(PING_LIMIT, end - time.monotonic())))
        if answered is not None:  # what the program draws in answer to the last event comes from now on
            start = time.monotonic()
        called: float | None = None
        waited = processor_wait() if processor_wait else None
        while True:
            now = time.monotonic()
            drawn = bool(answered) or self.last_damage >= since
            rest = max(start, self.last_damage) + quiet - now if drawn else start + first - now
            if rest <= 0 and now < end and waited and (unserved := waited()) > WAITED:
                start = now - quiet + unserved if drawn else now - first + unserved
                continue
            if rest <= 0 or now >= end:
                return rest <= 0
            calm = rest - (quiet - CALM)  # how long until the work may begin
            if meanwhile and drawn and called != self.last_damage and calm <= 0:
                called = self.last_damage
                meanwhile()
                self.pump()
            else:
                waiting = meanwhile and drawn and called != self.last_damage
                self.wait_event(min(calm if waiting else rest, end - now))

    def _rests(self, limit: float, meanwhile: Callable[[], None] | None, asleep: Callable[[], bool]) -> bool:
        """Whether every program slept at some moment within `limit` s, and nothing was drawn after `meanwhile`."""
        end = time.monotonic() + limit
        while True:
            if asleep():
                self.pump()  # the X server slept too, so all that it had to tell has come
                before = self.last_damage
                if meanwhile:
                    meanwhile()
                    self.pump()
                if self.last_damage == before:
                    return True
            if (left := end - time.monotonic()) <= 0:
                return False
            self.wait_event(min(STEP, left))
