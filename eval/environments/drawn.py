"""What no drawn desktop can do: it is one picture, without programs, windows or a browser."""

from __future__ import annotations

from typing import Final

from eval.actions import Action, ActionType
from eval.desktop import ActionRefused

CANNOT: Final = {
    ActionType.GOTO: "there is no browser",
    ActionType.BACK: "there is no browser",
    ActionType.FORWARD: "there is no browser",
    ActionType.REFRESH: "there is no browser",
    ActionType.OPEN_APP: "there are no other programs",
    ActionType.CLOSE_APP: "there are no other programs",
    ActionType.SELECT_MONITOR: "there is one monitor",
    ActionType.WINDOW_FOCUS: "there are no windows",
    ActionType.WINDOW_RESIZE: "there are no windows",
    ActionType.WINDOW_MOVE: "there are no windows",
    ActionType.CURSOR_POSITION: "the pointer has no position between actions",
    ActionType.CALL_USER: "there is no user to call",
}


def check(action: Action) -> None:
    """Raises ActionRefused for an action that no drawn desktop can do."""
    if (why := CANNOT.get(action.type)) is not None:
        raise ActionRefused(why)
