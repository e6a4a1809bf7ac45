"""A picture of what an environment tells in words, for one that shows no picture."""

from __future__ import annotations

import textwrap
from typing import Final

from PIL import Image, ImageDraw

from eval.actions import ActionType

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
