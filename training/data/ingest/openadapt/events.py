"""Raw input events of a recording to actions: presses and releases become clicks, drags, scrolls, typing and keys.

The rules, in the order of the events (pointer moves are no events here: only where a button goes down and up counts):

- A button that goes down and up within `drag` pixels is a click, farther apart a drag. Left clicks within the
  double-click interval and distance of the one before, nothing in between, are one double or triple click.
- Wheel events at one place, without a rest in between and with the same modifiers, are one gesture. A hand on a
  trackpad drifts: the lines of a gesture add up along each axis, and an axis with less than half the lines of the other
  is no scroll of its own (`drift` counts its lines). Along an axis a new scroll begins where the direction turns.
- Printable characters are text: what follows each other is one TYPE, shift, AltGr and a Mac's Option included. Every
  other key is a KEY, and with modifiers held a HOTKEY (`keyboard`). A modifier held during a click belongs to the
  click. Pressed on its own, the Windows, command and alt keys are a KEY (they open menus); ctrl and shift do nothing
  and are dropped, and so are modifiers that were only pressed together.

What fits no rule is an action without a kind, with the reason why: it is dropped and counted, never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from eval.actions import ActionType
from training.data.ingest.openadapt.keyboard import ORDER, InputEvent, Keyboard

DRIFT: Final = 0.5  # lines along the other axis, relative to those of the gesture
PAUSE: Final = 0.15  # seconds before an event along the other axis alone, from which on it is meant


@dataclass
class Derived:
    """One action of a human: `kind` and its fields; kind None says that it is none, and `reason` why.

    begin, end  seconds, of its first and last event
    bound       when the frame was taken that the recorder kept as the one before it, or None
    start, stop places in the mouse's pixels
    drift       lines of a scroll along the other axis, which are left out
    """

    kind: ActionType | None
    begin: float
    end: float
    bound: float | None = None
    start: tuple[float, float] | None = None
    stop: tuple[float, float] | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    detail: str = ""
    drift: float = 0.0


class Gesture:
    """Wheel events that belong together. All have a place and both numbers."""

    def __init__(self, event: InputEvent, modifiers: tuple[str, ...]) -> None:
        self.events = [event]
        self.modifiers = modifiers

    def takes(self, event: InputEvent, modifiers: tuple[str, ...], gap: float, near: float) -> bool:
        """Takes the next event, or says that a new gesture begins with it."""
        first, last = self.events[0], self.events[-1]
        rest = event.time - last.time
        if rest > gap or modifiers != self.modifiers or math.dist(_position(first), _position(event)) >= near:
            return False
        if (
            rest > PAUSE
            and bool(event.dx) != bool(event.dy)
            and not any(e.dx if event.dx else e.dy for e in self.events)
        ):
            return False
        self.events.append(event)
        return True

    def scrolls(self, mac: bool) -> list[Derived]:
        """The scrolls; one without a kind when nothing moved. macOS counts lines to the left, the others to the right.

        NSEvent's and so CGEvent's horizontal deltas are the web's with the sign turned:
        https://github.com/linebender/wiki/blob/main/mouse-wheel.md
        """
        across = [(event, (event.dx or 0.0) * (-1 if mac else 1)) for event in self.events]
        along = [(event, event.dy or 0.0) for event in self.events]
        lines = {"x": sum(abs(delta) for _, delta in across), "y": sum(abs(delta) for _, delta in along)}
        if not any(lines.values()):
            first, last = self.events[0], self.events[-1]
            return [Derived(None, first.time, last.time, reason="unclear_scroll", detail="by 0 lines")]
        most, least = max(lines.values()), min(lines.values())
        both = least >= DRIFT * most
        runs: list[Derived] = []
        for axis, deltas in (("x", across), ("y", along)):
            if lines[axis] == most or both:
                runs += self._runs(deltas, ("left", "right") if axis == "x" else ("down", "up"))
        runs.sort(key=lambda run: run.begin)
        if not both:
            runs[0].drift = least
        return runs

    def _runs(self, deltas: Sequence[tuple[InputEvent, float]], names: tuple[str, str]) -> list[Derived]:
        runs: list[Derived] = []
        for event, delta in deltas:
            if not delta:
                continue
            direction = names[delta > 0]
            if not runs or runs[-1].fields["direction"] != direction:
                fields: dict[str, Any] = {"direction": direction, "amount": 0.0}
                if self.modifiers:
                    fields["modifiers"] = self.modifiers
                runs.append(
                    Derived(ActionType.SCROLL, event.time, event.time, event.bound, _position(event), None, fields)
                )
            runs[-1].fields["amount"] += abs(delta)
            runs[-1].end = event.time
        return runs


def _position(event: InputEvent) -> tuple[float, float]:
    assert event.x is not None
    assert event.y is not None
    return event.x, event.y


__all__ = ["Derived", "InputEvent", "Rules", "derive"]

CLICKS: Final = {"left": ActionType.CLICK, "right": ActionType.RIGHT_CLICK, "middle": ActionType.MIDDLE_CLICK}
REPEATED: Final = {1: ActionType.CLICK, 2: ActionType.DOUBLE_CLICK, 3: ActionType.TRIPLE_CLICK}


@dataclass(frozen=True)
class Rules:
    """drag, near: pixels of the mouse; interval, gap: seconds; platform: win32, darwin, linux, or "" for none."""

    drag: float = 10.0
    near: float = 5.0
    interval: float = 0.5
    gap: float = 1.0
    platform: str = ""


def derive(events: Iterable[InputEvent], rules: Rules) -> list[Derived]:
    """The actions in the order in which they began."""
    events = list(events)
    machine = _Machine(rules, Keyboard(rules.platform, events))
    for event in events:
        machine.take(event)
    machine.finish()
    return sorted(machine.actions, key=lambda action: action.begin)


class _Machine:
    def __init__(self, rules: Rules, keyboard: Keyboard) -> None:
        self.rules = rules
        self.keyboard = keyboard
        self.actions: list[Derived] = []
        self.down: dict[str, tuple[InputEvent, tuple[str, ...]]] = {}  # buttons
        self.held: dict[str, InputEvent] = {}  # modifiers
        self.used: set[str] = set()  # modifiers that were part of an action
        self.together: set[str] = set()  # modifiers that were held with another, such as AltGr under Windows
        self.text: Derived | None = None
        self.clicked: Derived | None = None  # the last action, while it may become a double click
        self.clicks = 0
        self.wheel: Gesture | None = None

    def take(self, event: InputEvent) -> None:
        if event.name == "click":
            self._button(event)
        elif event.name == "scroll":
            self._wheel(event)
        elif event.name == "press":
            self._press(event)
        elif event.name == "release":
            self._release(event)
        else:
            self._none(event, "unknown_event", event.name)

    def finish(self) -> None:
        self._break()
        for press, _ in self.down.values():
            self._none(press, "unmatched_press", f"the {press.button} button never came up")

    def _break(self, keep: str = "") -> None:
        """Ends the actions that the next event cannot continue."""
        if keep != "text":
            self.text = None
        if keep != "click":
            self.clicked = None
        if keep != "scroll" and self.wheel is not None:
            self.actions += self.wheel.scrolls(self.rules.platform == "darwin")
            self.wheel = None

    def _add(self, action: Derived) -> Derived:
        self.actions.append(action)
        return action

    def _none(self, event: InputEvent, reason: str, detail: str = "") -> None:
        self._break()
        self._add(Derived(None, event.time, event.time, reason=reason, detail=detail))

    def _modifiers(self) -> tuple[str, ...]:
        self.used.update(self.held)
        return tuple(self.keyboard.named(name) for name in ORDER if name in self.held)

    # the mouse

    def _button(self, event: InputEvent) -> None:
        place = _place(event)
        if place is None or event.pressed is None or event.button not in CLICKS:
            self._none(event, "unknown_event", f"a click with button {event.button!r}, pressed {event.pressed!r}")
            return
        if event.pressed:
            if event.button in self.down:
                self._none(self.down.pop(event.button)[0], "unmatched_press", "pressed twice")
            self.down[event.button] = (event, self._modifiers())
            self._break("click")
            return
        if event.button not in self.down:
            self._none(event, "unmatched_release", f"the {event.button} button was not down")
            return
        press, modifiers = self.down.pop(event.button)
        origin = _place(press)
        assert origin is not None
        extra: dict[str, Any] = {"modifiers": modifiers} if modifiers else {}
        if math.dist(origin, place) >= self.rules.drag:
            self._break()
            if event.button != "left":
                extra["button"] = event.button
            self._add(Derived(ActionType.DRAG, press.time, event.time, press.bound, origin, place, extra))
            return
        self._break("click")
        before = self.clicked
        if (
            before is not None
            and before.start is not None
            and event.button == "left"
            and self.clicks < 3
            and before.fields == extra
            and press.time - before.end <= self.rules.interval
            and max(abs(before.start[0] - origin[0]), abs(before.start[1] - origin[1])) <= self.rules.near
        ):
            self.clicks += 1
            before.kind, before.end = REPEATED[self.clicks], press.time
            return
        self.clicks = 1
        action = self._add(Derived(CLICKS[event.button], press.time, press.time, press.bound, origin, None, extra))
        self.clicked = action if event.button == "left" else None

    def _wheel(self, event: InputEvent) -> None:
        if _place(event) is None or (event.dx is None and event.dy is None):
            self._none(event, "unclear_scroll", f"by {event.dx}, {event.dy}")
            return
        modifiers = self._modifiers()
        self._break("scroll")
        if self.wheel is None or not self.wheel.takes(event, modifiers, self.rules.gap, self.rules.drag):
            self._break()
            self.wheel = Gesture(event, modifiers)

    # the keyboard

    def _press(self, event: InputEvent) -> None:
        modifier = event.modifier
        if modifier is not None:
            if modifier not in self.held:  # a held key repeats
                self.used.discard(modifier)
                self.together.discard(modifier)
                if self.held:
                    self.together.update(self.held, (modifier,))
                self.held[modifier] = event
            return
        held = set(self.held)
        if self.keyboard.composes(event):
            self._add(Derived(None, event.time, event.time, reason="composing_key", detail=f"{event.key}"))
            return
        typed = self.keyboard.text(event, held)
        if typed is not None:
            self.used.update(held)
            if typed == " " and self.text is None and "shift" not in held:
                self._break()
                self.text = self._add(
                    Derived(ActionType.KEY, event.time, event.time, event.bound, fields={"keys": ("space",)})
                )
                return
            self._type(event, typed)
            return
        key = self.keyboard.key(event, held)
        if key is None:
            self._none(event, "unknown_key", f"{event.key or event.char or event.plain!r}, number {event.code}")
            return
        modifiers = self._modifiers()
        self._break()
        kind = ActionType.HOTKEY if modifiers else ActionType.KEY
        self._add(Derived(kind, event.time, event.time, event.bound, fields={"keys": (*modifiers, key)}))

    def _type(self, event: InputEvent, typed: str) -> None:
        before = self.text
        if before is None:
            self._break()
            self.text = self._add(Derived(ActionType.TYPE, event.time, event.time, event.bound, fields={"text": typed}))
            return
        if before.kind is ActionType.KEY:  # a space that begins a text
            before.kind, before.fields = ActionType.TYPE, {"text": " "}
        before.fields["text"] += typed
        before.end = event.time

    def _release(self, event: InputEvent) -> None:
        modifier = event.modifier
        if modifier is None or modifier not in self.held:
            return
        press = self.held.pop(modifier)
        if modifier in self.used:
            return
        if modifier in ("cmd", "alt") and modifier not in self.together:
            self._break()
            keys = (self.keyboard.named(modifier),)
            self._add(Derived(ActionType.KEY, press.time, press.time, press.bound, fields={"keys": keys}))
        else:
            self._add(Derived(None, press.time, press.time, reason="lone_modifier", detail=modifier))


def _place(event: InputEvent) -> tuple[float, float] | None:
    return None if event.x is None or event.y is None else (event.x, event.y)
