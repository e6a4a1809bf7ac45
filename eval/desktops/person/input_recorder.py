"""Watches what a person does at a desktop: events of its mouse and keyboard, by X's extension RECORD.

What goes through VNC comes as XTest's events, which are recorded as a device's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from typing import Any, Final, Literal

import xcffib
import xcffib.record
import xcffib.xproto

from eval.desktop import DesktopGone
from eval.desktops.display.connection import connect, reachable
from eval.desktops.display.keysyms import keysym_of_key
from eval.desktops.display.running_desktop import RunningDesktop
from eval.desktops.person.action_gatherer import ENDS, PersonInput

FROM_SERVER, START_OF_DATA, END_OF_DATA = 0, 4, 5  # RECORD protocol, categories of a reply
STARTS_S: Final = 60.0  # the X server's first answer takes milliseconds; on a machine that stands still, seconds
ALL_CLIENTS: Final = 3  # RECORD protocol, XRecordAllClients
KINDS: Final[dict[int, Literal["key down", "key up", "button down", "button up", "motion"]]] = {
    2: "key down",
    3: "key up",
    4: "button down",
    5: "button up",
    6: "motion",
}
EVENT: Final = struct.Struct("=BBHIIIIhhhhHBx")  # an event of a key, a button or a motion (X11 protocol, appendix B)
LOCKS: Final = (0, 2, 16, 18)  # Caps Lock and Num Lock, on or off
CTRL_ALT: Final = 4 | 8


class InputRecorder:
    """The events of one display, in their order, from its making to `stop`: whoever is told to work after it was made
    loses none. Programs do not see the keys that end an episode (`gathering.ENDS`). Raises DesktopGone."""

    def __init__(self, place: RunningDesktop) -> None:
        self._place = place
        # None: the display is gone
        self.events: asyncio.Queue[PersonInput | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        with reachable(place.display):
            # one for each thread, and one whose events are recorded into a stream of answers
            self._asking, self._looking, self._data = (connect(place) for _ in range(3))
            self._record = self._asking(xcffib.record.key)
            self._record.QueryVersion(1, 13).reply()
            self._context = self._asking.generate_id()
            nothing = xcffib.record.Range8.synthetic(0, 0)
            none = xcffib.record.ExtRange.synthetic(nothing, xcffib.record.Range16.synthetic(0, 0))
            devices = xcffib.record.Range8.synthetic(min(KINDS), max(KINDS))
            wanted = xcffib.record.Range.synthetic(nothing, nothing, none, none, nothing, devices, nothing, 0, 0)
            self._record.CreateContextChecked(self._context, 0, 1, 1, [ALL_CLIENTS], [wanted]).check()
            self._grab()
            self._begun = threading.Event()
            self._thread = threading.Thread(target=self._read, name="watching", daemon=True)
            self._thread.start()
        if not self._begun.wait(STARTS_S):
            self.stop()
            raise DesktopGone(f"the X display {place.display} recorded nothing for {STARTS_S:g} s")

    def _grab(self) -> None:
        """Takes the keys that end an episode from the programs."""
        setup = self._asking.get_setup()
        root, first = setup.roots[0].root, setup.min_keycode
        mapping = self._asking.core.GetKeyboardMapping(first, setup.max_keycode - first + 1).reply()
        width = mapping.keysyms_per_keycode
        symbols = {keysym_of_key(keys[-1]) for keys in ENDS}
        codes = [first + n // width for n, symbol in enumerate(mapping.keysyms) if symbol in symbols and n % width == 0]
        mode = xcffib.xproto.GrabMode.Async
        for code in codes:
            for lock in LOCKS:
                with contextlib.suppress(xcffib.Error):  # another program has it
                    self._asking.core.GrabKeyChecked(False, root, CTRL_ALT | lock, code, mode, mode).check()

    def stop(self) -> None:
        """Ends the watching; also when the display is gone."""
        with contextlib.suppress(xcffib.XcffibException, xcffib.ConnectionException):
            self._record.DisableContextChecked(self._context).check()
        self._thread.join(5.0)
        for connection in (self._asking, self._looking, self._data):
            connection.disconnect()

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            try:
                with reachable(self._place.display):
                    self._events()
            except DesktopGone:
                self._begun.set()  # the queue tells that the display is gone
                self._loop.call_soon_threadsafe(self.events.put_nowait, None)

    def _events(self) -> None:
        enabled = self._data(xcffib.record.key).EnableContext(self._context)
        while True:
            reply = enabled.reply()
            if reply.category == START_OF_DATA:
                self._begun.set()
            if reply.category == END_OF_DATA:
                return
            if reply.category != FROM_SERVER:
                continue
            data = bytes(reply.data)
            for start in range(0, len(data) - 31, 32):
                event = self._event(data[start : start + 32])
                if event is not None:
                    self._loop.call_soon_threadsafe(self.events.put_nowait, event)

    def _event(self, data: bytes) -> PersonInput | None:
        head, code, _, time, _, _, _, x, y, _, _, state, _ = EVENT.unpack(data)
        if (kind := KINDS.get(head & 0x7F)) is None:
            return None
        symbols = self._symbols(code) if kind.startswith("key") else (0, 0)
        return PersonInput(kind, time, x, y, code=code, symbols=symbols, state=state)

    def _symbols(self, code: int) -> tuple[int, int]:
        """Asked anew for each key: a VNC server binds characters to keys as they come."""
        found: Any = self._looking.core.GetKeyboardMapping(code, 1).reply().keysyms
        symbols = [int(symbol) for symbol in found]
        return (symbols[0], symbols[1] if len(symbols) > 1 else 0) if symbols else (0, 0)
