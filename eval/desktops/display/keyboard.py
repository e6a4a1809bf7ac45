"""The keyboard of a display: keys by name, and text of any length and any script, in order and complete.

A character without a key gets one that nobody needs: a keycode without a symbol, then one of a vendor's extra keys.
Before such a keycode is bound again, the program must have read what was typed with it, else it reads the new
character for the old key. At the end the layout is as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from eval.desktops.display.connection import XConnection
from eval.desktops.display.keysyms import (
    CAPS_LOCK,
    NAMED_KEYS,
    NO_SYMBOL,
    SHIFT,
    UNICODE,
    VENDOR,
    keysym_of,
    keysym_of_key,
)

if TYPE_CHECKING:
    from eval.desktops.display.connection import XConnection


KEY_PRESS, KEY_RELEASE = 2, 3  # X11 protocol, event numbers
UNREAD: Final = 0.3  # seconds to wait where a program does not prove that it has read its keys
BOUND: Final = 0.01  # seconds that a new binding takes to reach the programs
LOCK_MASK: Final = 2
CHUNK: Final = 400  # characters between two looks at whether the program keeps up


class CannotType(ValueError):
    """A key or a character that this display's keyboard cannot produce."""


class XKeyboard:
    """Presses keys through XTest on an open connection.

    keys_read  waits until the active program has read its keys, and tells whether that is known
    pause      waits for so many seconds; it raises what ends a text in its middle
    """

    def __init__(
        self,
        connection: XConnection,
        pace: PressDelay,
        keys_read: Callable[[], bool],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.connection = connection
        self.pace = pace
        self._keys_read = keys_read
        self._wait = pause
        self.held: list[int] = []  # keycodes, in the order in which they were pressed
        self._spare: list[int] = []
        self._original: dict[int, list[int]] = {}
        self._codes: dict[int, tuple[int, bool]] = {}  # keysym -> (keycode, whether with shift)
        self._bound: dict[int, int] = {}  # keysym -> keycode that we gave it
        self._changed: set[int] = set()  # keycodes that are not as we came upon them
        self._read()

    def _read(self) -> None:
        """Reads the layout, and which keycodes may be given away."""
        core, codes = self.connection.x.core, self.connection.keycodes
        reply = core.GetKeyboardMapping(codes.start, len(codes)).reply()
        width = int(reply.keysyms_per_keycode)
        modifiers = {int(code) for code in core.GetModifierMapping().reply().keycodes}
        empty: list[int] = []
        extra: list[int] = []
        self._codes.clear()
        for index, code in enumerate(codes):
            symbols = [int(number) for number in reply.keysyms[index * width : (index + 1) * width]]
            if code not in modifiers and all(symbol == NO_SYMBOL or symbol >= UNICODE for symbol in symbols):
                (extra if any(symbols) else empty).append(code)
                self._original[code] = symbols
            for shifted in (False, True):  # the first two symbols; the others need modifiers that layouts differ in
                symbol = symbols[shifted] if len(symbols) > shifted else NO_SYMBOL
                if symbol != NO_SYMBOL and (symbol not in self._codes or not shifted):
                    self._codes.setdefault(symbol, (code, shifted))
        self._spare = empty + extra

    # Keys

    def fake(self, kind: int, code: int) -> None:
        """One event of a keycode."""
        self.connection.xtest.FakeInput(kind, code, 0, self.connection.root, 0, 0, 0)

    def code_of(self, name: str, *, combined: bool = False) -> tuple[int, bool]:
        """(keycode, whether it needs shift) of a key by its name. Raises CannotType for no key that X has.

        combined: the key is pressed together with others, where `C` and `c` name the same key.
        """
        return self._code(_symbol(name, combined))

    def _code(self, symbol: int) -> tuple[int, bool]:
        if symbol in self._bound:
            return self._bound[symbol], False
        if self._own_key(symbol) or (symbol in self._codes and self._codes[symbol][0] not in self._bound.values()):
            return self._codes[symbol]
        self._bind([symbol])
        return self._bound[symbol], False

    def press(self, name: str, *, combined: bool = False) -> None:
        """Presses a key and leaves it pressed."""
        code, shifted = self.code_of(name, combined=combined)
        self.pace.key(_symbol(name, combined))
        for needed in ([self._codes[SHIFT][0]] if shifted else []) + [code]:
            if needed not in self.held:
                self.fake(KEY_PRESS, needed)
                self.held.append(needed)

    def release(self, name: str, *, combined: bool = False) -> None:
        """Releases a key, whether or not we pressed it."""
        code, shifted = self.code_of(name, combined=combined)
        for needed in [code] + ([self._codes[SHIFT][0]] if shifted else []):
            self.fake(KEY_RELEASE, needed)
            if needed in self.held:
                self.held.remove(needed)

    def release_all(self) -> None:
        """Releases every key that the server says is down, by whomever it was pressed, and turns Caps Lock off."""
        down = self.connection.x.core.QueryKeymap().reply().keys
        for code in dict.fromkeys([*reversed(self.held), *self.connection.keycodes]):
            if down[code // 8] >> (code % 8) & 1:
                self.fake(KEY_RELEASE, code)
        self.held.clear()
        self._toggle_caps_lock(off=True)
        self.connection.sync()

    def _toggle_caps_lock(self, *, off: bool) -> bool:
        """Turns Caps Lock off, or on again. Returns whether it was pressed."""
        locked = bool(self.connection.x.core.QueryPointer(self.connection.root).reply().mask & LOCK_MASK)
        if locked is not off or CAPS_LOCK not in self._codes:
            return False
        for kind in (KEY_PRESS, KEY_RELEASE):
            self.fake(kind, self._codes[CAPS_LOCK][0])
        self.connection.sync()
        return True

    # Text

    def type(self, text: str) -> None:
        """Types a text. Raises CannotType, before anything is typed, for a character that no key stands for."""
        symbols = []
        for character in text.replace("\r\n", "\n").replace("\r", "\n"):
            symbol = keysym_of(character)
            if symbol is None:
                raise CannotType(f"the character U+{ord(character):04X} cannot be typed")
            symbols.append(symbol)
        was_locked = self._toggle_caps_lock(off=True)
        try:
            start = 0
            while start < len(symbols):
                end = self._fitting(symbols, start)
                self._bind([symbol for symbol in dict.fromkeys(symbols[start:end]) if not self._own_key(symbol)])
                for symbol in symbols[start:end]:
                    self._tap(symbol)
                self.connection.sync()
                start = end
                if start < len(symbols):
                    self.connection.ping()
                    self._wait(0.0)
        finally:
            if was_locked:
                self._toggle_caps_lock(off=False)

    def _own_key(self, symbol: int) -> bool:
        """Whether the layout has a key for it whose keycode is never given away."""
        return symbol in self._codes and self._codes[symbol][0] not in self._original

    def _fitting(self, symbols: list[int], start: int) -> int:
        """The end of the longest stretch that the spare keycodes are enough for at once, at most CHUNK."""
        needed: set[int] = set()
        for index in range(start, min(len(symbols), start + CHUNK)):
            if not self._own_key(symbols[index]):
                needed.add(symbols[index])
            if len(needed) > len(self._spare):
                return index
        return min(len(symbols), start + CHUNK)

    def _tap(self, symbol: int) -> None:
        code, shifted = self._code(symbol)
        shift = self._codes[SHIFT][0]
        self.pace.key(symbol)
        if shifted:
            self.fake(KEY_PRESS, shift)
        self.fake(KEY_PRESS, code)
        self.fake(KEY_RELEASE, code)
        if shifted:
            self.fake(KEY_RELEASE, shift)

    def _bind(self, symbols: list[int]) -> None:
        """Gives each symbol a keycode of its own; at most as many as there are spare ones."""
        missing = [symbol for symbol in symbols if symbol not in self._bound]
        if not missing:
            return
        if not self._spare:
            raise CannotType("the keyboard has no keycode left for a character that it has no key for")
        taken = set(self._bound.values())
        free = [code for code in self._spare if code not in taken]
        if len(missing) > len(free):
            self._read_by_program()
            self._bound.clear()
            missing, free = symbols, list(self._spare)
        codes = free[: len(missing)]
        self._bound.update(zip(missing, codes, strict=True))
        self._changed.update(codes)
        self._set({code: [symbol, symbol] for symbol, code in zip(missing, codes, strict=True)})
        time.sleep(BOUND)

    def _set(self, rows: dict[int, list[int]]) -> None:
        """Changes the symbols of keycodes in one request: each request makes every program read the layout again."""
        first, last = min(rows), max(rows)
        reply = self.connection.x.core.GetKeyboardMapping(first, last - first + 1).reply()
        width, symbols = int(reply.keysyms_per_keycode), [int(symbol) for symbol in reply.keysyms]
        for code, row in rows.items():
            start = (code - first) * width
            symbols[start : start + width] = [*row, *[NO_SYMBOL] * width][:width]
        self.connection.x.core.ChangeKeyboardMapping(last - first + 1, first, width, symbols)
        self.connection.sync()

    def _read_by_program(self) -> None:
        """Waits until the active program has read its keys."""
        if not self._keys_read():
            time.sleep(UNREAD)

    def restore(self) -> None:
        """Gives the layout back as it was, after the program has read what was typed."""
        if not self._changed:
            return
        self._read_by_program()
        rows = {code: [s if s >= VENDOR else NO_SYMBOL for s in self._original[code]] for code in self._changed}
        self._set(rows)
        self._bound.clear()
        self._changed.clear()


def _symbol(name: str, combined: bool) -> int:
    """The keysym of a key by its name. Raises CannotType."""
    symbol = keysym_of_key(name.lower() if combined and len(name) == 1 else name)
    if symbol is None:
        raise CannotType(f"there is no key {name[:30]!r} on this keyboard")
    return symbol


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
