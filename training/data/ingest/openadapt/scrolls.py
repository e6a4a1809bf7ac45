"""Wheel events of one gesture to scrolls: a hand on a trackpad drifts, and its events count both axes, or none.

The events of a gesture follow each other without a rest, at one place, with the same modifiers. Their lines add up
along each axis. An axis with less than half the lines of the other is drift: it is no scroll of its own, and `drift`
counts its lines. Along an axis a new scroll begins where the direction turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from eval.actions import ActionType
from training.data.ingest.openadapt.keyboard import InputEvent

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
        if rest > gap or modifiers != self.modifiers or math.dist(_place(first), _place(event)) >= near:
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
                    Derived(ActionType.SCROLL, event.time, event.time, event.bound, _place(event), None, fields)
                )
            runs[-1].fields["amount"] += abs(delta)
            runs[-1].end = event.time
        return runs


def _place(event: InputEvent) -> tuple[float, float]:
    assert event.x is not None
    assert event.y is not None
    return event.x, event.y
