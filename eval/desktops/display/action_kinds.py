"""Which actions are clicks, which are keys, and which only tell or look."""

from __future__ import annotations

from typing import Final

from eval.actions import ActionType

# (button, None: the one that the action names; presses)
CLICKS: Final = {
    ActionType.CLICK: (None, 1),
    ActionType.DOUBLE_CLICK: (None, 2),
    ActionType.TRIPLE_CLICK: (None, 3),
    ActionType.RIGHT_CLICK: ("right", 1),
    ActionType.MIDDLE_CLICK: ("middle", 1),
}
SHORTCUTS: Final = {
    ActionType.BACK: ("alt", "left"),
    ActionType.FORWARD: ("alt", "right"),
    ActionType.REFRESH: ("f5",),
}
BY_KEYS: Final = frozenset(
    {
        *SHORTCUTS,
        ActionType.TYPE,
        ActionType.KEY,
        ActionType.HOTKEY,
        ActionType.KEY_DOWN,
        ActionType.KEY_UP,
        ActionType.GOTO,
    }
)
# Actions that tell something, or only ask to look
SILENT: Final = frozenset(
    {
        ActionType.SCREENSHOT,
        ActionType.ZOOM,
        ActionType.CURSOR_POSITION,
        ActionType.DONE,
        ActionType.FAIL,
        ActionType.CALL_USER,
    }
)
