"""How long an action asks to take: what its desktop needs beyond that is the desktop's own time."""

from __future__ import annotations

from typing import Final

from eval.actions.action import Action, ActionType

WAIT_S: Final = 1.0  # of a wait that names no duration
# A character that the keyboard has no key for took 10 ms (5,000 different CJK characters into Mousepad, busy cores),
# and a program that is slow to read its keys makes it several times as long
SLOW_KEY_S: Final = 0.05


def waits(action: Action) -> float:
    """Seconds that the action itself names: of a wait, of a key that is held, of a drag."""
    if action.type is ActionType.WAIT and action.duration is None:
        return WAIT_S
    return action.duration or 0.0


def asks(action: Action) -> float:
    """Seconds that the action may take because of what it asks for: what it names, its characters, its clicks."""
    pressed = len(action.text or action.url or "") + (action.amount or 0.0)
    return waits(action) + SLOW_KEY_S * pressed
