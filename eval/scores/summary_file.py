"""Writes summary.json, and summary.png: its first rate as a picture, a bar for each agent, for messages to a team."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from eval.scores.summary import MetricRow

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

WIDTH: Final = 760  # pixels
ROW: Final = 56  # pixels of one agent
LEFT, RIGHT, TOP, BOTTOM = 24, 736, 56, 40  # pixels: where the axis begins and ends; above and below the bars
MOST: Final = 12  # agents; more are counted in a line
RATES: Final = ("success", "accuracy")  # how the names of metrics end that lie between 0 and 1
INK, GREY, TRACK, FIRST, OTHER = "#1f2328", "#656d76", "#eaeef2", "#0969da", "#8c959f"


def write_summary(path: Path, rows: Sequence[MetricRow]) -> None:
    """Writes summary.json and, where it has a rate, summary.png beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if (picture := draw(rows)) is not None:
        _write(path.with_suffix(".png"), picture)
    _write(path, json.dumps(msgspec.to_builtins(rows), indent=1).encode() + b"\n")


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(content)
    temporary.replace(path)


def draw(rows: Sequence[MetricRow]) -> bytes | None:
    """A PNG of the first metric that is a rate, for each agent that has it; None where no row has one."""
    from PIL import Image
    from PIL.ImageDraw import Draw
    from PIL.ImageFont import load_default

    known = [row for row in rows if row.value is not None and row.metric.endswith(RATES)]
    if not known:
        return None
    shown = [row for row in known if (row.metric, row.benchmark) == (known[0].metric, known[0].benchmark)]
    left_out = len(shown) - MOST
    height = TOP + ROW * min(len(shown), MOST) + BOTTOM
    image = Image.new("RGB", (WIDTH, height), "white")
    pen = Draw(image)
    small, large = load_default(15), load_default(20)
    first = shown[0]
    pen.text((LEFT, 16), _cut(f"{first.benchmark}, {first.split}: {first.metric}"), INK, large)
    for place, row in enumerate(shown[:MOST]):
        _bar(pen, row, TOP + ROW * place, FIRST if place == 0 else OTHER, small)
    below = height - BOTTOM + 8
    for share in (0, 25, 50, 75, 100):
        pen.text((_at(share / 100), below), f"{share} %", GREY, small, anchor="ma")
    if left_out > 0:
        pen.text((RIGHT, 22), f"and {left_out} more", GREY, small, anchor="ra")
    kept = io.BytesIO()
    image.save(kept, "PNG")
    return kept.getvalue()


def _bar(pen: ImageDraw, row: MetricRow, y: int, colour: str, font: FreeTypeFont | ImageFont) -> None:
    """One agent: its name, its figure in words, a bar up to the value, and a line over the interval."""
    value = row.value or 0.0
    words = f"{100 * value:.1f} %"
    if row.ci_low is not None and row.ci_high is not None:
        words += f" ({100 * row.ci_low:.1f} to {100 * row.ci_high:.1f})"
    words += f" of {row.n}" + (f", {row.infra_failures} infra" if row.infra_failures else "")
    pen.text((LEFT, y), _cut(row.agent, 44), INK, font)
    pen.text((RIGHT, y), words, INK, font, anchor="ra")
    pen.rectangle((LEFT, y + 24, RIGHT, y + 40), TRACK)
    if value:
        pen.rectangle((LEFT, y + 24, _at(value), y + 40), colour)
    if row.ci_low is not None and row.ci_high is not None:
        pen.line((_at(row.ci_low), y + 32, _at(row.ci_high), y + 32), INK, 2)
        for end in (row.ci_low, row.ci_high):
            pen.line((_at(end), y + 27, _at(end), y + 37), INK, 2)


def _at(share: float) -> int:
    return round(LEFT + (RIGHT - LEFT) * min(max(share, 0.0), 1.0))


def _cut(text: str, longest: int = 70) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
