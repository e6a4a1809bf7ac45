"""The widths and colours in which pages are looked at."""

from __future__ import annotations

from typing import Any

import pytest


def screens(narrow: int, middle: int, wide: int) -> list[Any]:
    """Parameters (width in pixels, theme): the narrow light one and the middle dark one in CI, all others at night."""
    first = [(narrow, "light"), (middle, "dark")]
    others = [(width, theme) for width in (narrow, middle, wide) for theme in ("light", "dark")]
    return [*first, *[pytest.param(*one, marks=pytest.mark.nightly) for one in others if one not in first]]
