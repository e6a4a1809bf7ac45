"""Makes actions of what a person does with mouse and keyboard: presses, releases and moves become clicks, drags,
scrolls, texts and keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from eval.actions import Action, ActionType
from eval.actions.geometry import Screen
from eval.desktops.display.keysyms import NAMED_KEYS, UNICODE, VENDOR

NEAR: Final = 4  # pixels; a button that goes up this near to where it went down is a click
BENT: Final = 10  # pixels; a drag that strays this far from a straight line has a path
POINTS: Final = 100  # of a path
AGAIN_MS: Final = 400  # between two clicks that are one double click; GTK's own is 400
QUIET_MS: Final = 1000  # a text or a scroll that rests so long is whole
BUTTONS: Final = {1: "left", 2: "middle", 3: "right", 8: "back", 9: "forward"}
WHEEL: Final = {4: "up", 5: "down", 6: "left", 7: "right"}
MODIFIERS: Final = {
    **{0xFFE1: "shift", 0xFFE2: "shift", 0xFFE3: "ctrl", 0xFFE4: "ctrl", 0xFFE7: "alt", 0xFFE8: "alt"},
    **{0xFFE9: "alt", 0xFFEA: "alt", 0xFFEB: "win", 0xFFEC: "win"},
}
# later names of one number lose: `enter`, not `return`
KEYS: Final = {number: name for name, number in reversed(NAMED_KEYS.items()) if number not in MODIFIERS}
KEYPAD: Final = {0xFF8D: "enter", 0xFF95: "home", 0xFF96: "left", 0xFF97: "up", 0xFF98: "right", 0xFF99: "down"}
ORDER: Final = ("ctrl", "alt", "shift", "win")
ENDS: Final[dict[tuple[str, ...], ActionType]] = {
    ("ctrl", "alt", "enter"): ActionType.DONE,
    ("ctrl", "alt", "backspace"): ActionType.FAIL,
}
LOCKED: Final = 2  # X11 protocol, the bit of Caps Lock in an event's state


@dataclass(frozen=True)
class PersonInput:
    """One event of a device.

    time     milliseconds, as the X server counts them
    code     of a button: its number
    symbols  of a key: its keysyms without and with shift
    x, y     the pointer, in pixels
    state    X11's bits of modifiers before the event
    """

    kind: Literal["key down", "key up", "button down", "button up", "motion"]
    time: int
    x: int
    y: int
    code: int = 0
    symbols: tuple[int, int] = (0, 0)
    state: int = 0


@dataclass
class _Press:
    button: str
    at: tuple[int, int]
    modifiers: tuple[str, ...]
    path: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class _Repeated:
    """Clicks or turns of the wheel that may go on."""

    what: str
    at: tuple[int, int]
    modifiers: tuple[str, ...]
    time: int
    count: int = 1


class Gatherer:
    """Takes events in their order and gives actions as soon as they are whole.

    A key that only modifies says nothing alone. A move without a button is no action: the next click has its place.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self._screen = Screen(*size)
        self._held: list[str] = []
        self._text = ""
        self._clicks: _Repeated | None = None
        self._wheel: _Repeated | None = None
        self._press: _Press | None = None

    @property
    def waiting(self) -> bool:
        """Whether something has begun that is not whole yet."""
        return bool(self._text or self._clicks or self._wheel or self._press or self._held)

    def feed(self, event: PersonInput) -> list[Action]:
        """The actions that this event makes whole."""
        if event.kind == "motion":
            if self._press is not None:
                self._press.path.append((event.x, event.y))
            return []
        if event.kind == "key up":
            name = MODIFIERS.get(event.symbols[0])
            if name in self._held:
                self._held.remove(name)
            return []
        if event.kind == "key down":
            return self._key(event)
        return self._button(event)

    def rest(self, quiet_ms: float) -> list[Action]:
        """The actions that are whole because nothing has come for so long."""
        if quiet_ms < (AGAIN_MS if self._clicks else QUIET_MS):
            return []
        return self._flush()

    def _modifiers(self) -> tuple[str, ...]:
        return tuple(name for name in ORDER if name in self._held)

    def _norm(self, at: tuple[int, int]) -> tuple[float, float]:
        return self._screen.to_norm(*at)

    def _flush(self) -> list[Action]:
        """What was begun, as it is."""
        done = []
        if self._text:
            done.append(Action(ActionType.TYPE, text=self._text))
        if self._clicks is not None:
            done.append(self._clicked(self._clicks))
        if self._wheel is not None:
            x, y = self._norm(self._wheel.at)
            direction, amount = self._wheel.what, float(self._wheel.count)
            held = self._wheel.modifiers or None
            done.append(Action(ActionType.SCROLL, x=x, y=y, direction=direction, amount=amount, modifiers=held))
        self._text, self._clicks, self._wheel = "", None, None
        return done

    def _clicked(self, clicks: _Repeated) -> Action:
        x, y = self._norm(clicks.at)
        held = clicks.modifiers or None
        single = {"right": ActionType.RIGHT_CLICK, "middle": ActionType.MIDDLE_CLICK}
        kinds = (single.get(clicks.what, ActionType.CLICK), ActionType.DOUBLE_CLICK, ActionType.TRIPLE_CLICK)
        kind = kinds[clicks.count - 1]
        button = None if clicks.what == "left" or kind in single.values() else clicks.what
        return Action(kind, x=x, y=y, modifiers=held, button=button)

    # Keys

    def _key(self, event: PersonInput) -> list[Action]:
        plain, shifted = event.symbols
        if (modifier := MODIFIERS.get(plain)) is not None:
            done = [] if modifier == "shift" and self._text else self._flush()
            if modifier not in self._held:
                self._held.append(modifier)
            return done
        held = self._modifiers()
        capital = ("shift" in held) != (bool(event.state & LOCKED) and character(plain).isalpha())
        written = character(shifted or plain) if capital else character(plain)
        if written and not set(held) - {"shift"}:
            done = self._flush() if self._clicks or self._wheel else []
            self._text += written
            return done
        if (name := KEYS.get(plain) or KEYPAD.get(plain) or character(plain).lower()) == "":
            return []
        done = self._flush()
        if (end := ENDS.get((*held, name))) is not None:
            return [*done, Action(end)]
        if held:
            return [*done, Action(ActionType.HOTKEY, keys=(*held, "space" if name == " " else name))]
        return [*done, Action(ActionType.KEY, keys=(name,))]

    # The mouse

    def _button(self, event: PersonInput) -> list[Action]:
        at = (event.x, event.y)
        if event.code in WHEEL:
            return self._wheeled(event, WHEEL[event.code], at) if event.kind == "button down" else []
        if (button := BUTTONS.get(event.code)) is None:
            return []
        if event.kind == "button down":
            goes_on = self._clicks is not None and self._continues(self._clicks, button, at, event.time, AGAIN_MS)
            done = [] if goes_on and not self._text else self._flush()
            self._press = _Press(button, at, self._modifiers())
            return done
        press, self._press = self._press, None
        if press is None or press.button != button:
            return []
        if math.dist(press.at, at) > NEAR or _strays(press.path, press.at, at) > NEAR:
            return [*self._flush(), self._dragged(press, at)]
        return self._click(press, event.time)

    def _click(self, press: _Press, time: int) -> list[Action]:
        known = self._clicks
        if known is not None and known.count < 3:
            known.count, known.time = known.count + 1, time
            if press.button in ("back", "forward"):  # no double clicks of these
                known.count = 1
                return [self._clicked(known)]
            return []
        done = self._flush()
        self._clicks = _Repeated(press.button, press.at, press.modifiers, time)
        return done

    def _wheeled(self, event: PersonInput, direction: str, at: tuple[int, int]) -> list[Action]:
        wheel = self._wheel
        if wheel is not None and self._continues(wheel, direction, at, event.time, QUIET_MS):
            wheel.count, wheel.time = wheel.count + 1, event.time
            return []
        done = self._flush()
        self._wheel = _Repeated(direction, at, self._modifiers(), event.time)
        return done

    def _continues(self, known: _Repeated, what: str, at: tuple[int, int], time: int, within: int) -> bool:
        same = known.what == what and known.modifiers == self._modifiers()
        return same and math.dist(known.at, at) <= NEAR and 0 <= time - known.time <= within

    def _dragged(self, press: _Press, end: tuple[int, int]) -> Action:
        (x, y), (x2, y2) = self._norm(press.at), self._norm(end)
        path = None
        if _strays(press.path, press.at, end) > BENT:
            step = max(1, math.ceil(len(press.path) / POINTS))
            path = tuple(self._norm(point) for point in press.path[::step])
        button = None if press.button == "left" else press.button
        held = press.modifiers or None
        return Action(ActionType.DRAG, x=x, y=y, x2=x2, y2=y2, path=path, button=button, modifiers=held)


def character(symbol: int) -> str:
    """The character that a keysym stands for (X11 protocol, appendix A); "" for none."""
    if 0x20 <= symbol <= 0x7E or 0xA0 <= symbol <= 0xFF:
        return chr(symbol)
    if UNICODE < symbol < VENDOR and symbol - UNICODE <= 0x10FFFF:
        found = chr(symbol - UNICODE)
        return found if found.isprintable() else ""
    return str((symbol - 0xFFB0) if 0xFFB0 <= symbol <= 0xFFB9 else "")  # the digits of the keypad


def _strays(path: Sequence[tuple[int, int]], start: tuple[int, int], end: tuple[int, int]) -> float:
    """The largest distance of a point of the path to the straight line between the ends, in pixels."""
    (ax, ay), (bx, by) = start, end
    length = math.dist(start, end) ** 2
    far = 0.0
    for x, y in path:
        along = 0.0 if not length else max(0.0, min(1.0, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length))
        far = max(far, math.dist((x, y), (ax + along * (bx - ax), ay + along * (by - ay))))
    return far
