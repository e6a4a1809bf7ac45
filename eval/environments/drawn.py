"""For environments that draw their pictures: which actions no drawing can do, and a text as a picture."""

from __future__ import annotations

import textwrap
from typing import Final

from PIL import Image, ImageDraw

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


SIZE: Final = (640, 480)  # pixels
COLUMNS: Final = 100  # characters of Pillow's built-in font in a line
LINES: Final = 40
# what changes nothing in an environment whose time goes on with its steps alone
STILL: Final = (ActionType.DONE, ActionType.FAIL, ActionType.WAIT, ActionType.SCREENSHOT, ActionType.ZOOM)


def picture_of(text: str) -> Image.Image:
    """The text, black on white; what does not fit is left out."""
    image = Image.new("RGB", SIZE, "white")
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, COLUMNS) or [""]]
    plain = "\n".join(lines[:LINES]).encode("latin-1", "replace").decode("latin-1")
    ImageDraw.Draw(image).multiline_text((8, 8), plain, fill="black", spacing=1)
    return image
