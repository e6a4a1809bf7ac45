"""Coordinate frames, and the image sizes that model families see.

A frame of W x H cells (screen pixels, a model's grid, a resized image) covers the unit square: cell i spans
[i / W, (i + 1) / W). An integer names a cell and stands for its centre, so integer -> normalised -> integer is exact in
every frame, also through a finer one, and the last cell is W - 1 at every edge. Numbers outside a frame raise
OutOfFrame; they are never clamped in silence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, width, height; normalised


class OutOfFrame(ValueError):
    """A coordinate that lies outside its frame."""


@dataclass(frozen=True)
class Cells:
    """A frame of `width` x `height` integer cells."""

    width: int
    height: int

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise ValueError(f"a frame needs at least one cell each way, not {self.width}x{self.height}")

    def to_norm(self, x: float, y: float) -> Point:
        """A cell (ints: its centre), or a point between cells (floats in [0, width]), as normalised coordinates."""
        return _to_norm(x, self.width), _to_norm(y, self.height)

    def from_norm(self, x: float, y: float) -> tuple[int, int]:
        """The cell that holds the normalised point; 1.0 lies in the last one."""
        return _from_norm(x, self.width), _from_norm(y, self.height)


PIXELS: Final = "as published"  # the name of this rule in records; those without one took the middle of a cell


@dataclass(frozen=True)
class PublishedPixels(Cells):
    """A frame as the scorers of published benchmarks take it: pixel i of W lies at i / W, not amid its cell.

    A point on an edge of a box is then in the box, as there. For scoring alone: nobody clicks there.
    """

    def to_norm(self, x: float, y: float) -> Point:
        return _to_norm(float(x), self.width), _to_norm(float(y), self.height)


@dataclass(frozen=True)
class Screen(Cells):
    """Screen pixels."""


def _unit(value: float) -> float:
    if not 0.0 <= value <= 1.0:  # also refuses NaN
        raise OutOfFrame(f"{value!r} is outside [0, 1]")
    return float(value)


def _to_norm(value: float, size: int) -> float:
    if isinstance(value, int):
        if not 0 <= value < size:
            raise OutOfFrame(f"{value} is outside 0..{size - 1}")
        return (value + 0.5) / size
    if not 0.0 <= value <= size:
        raise OutOfFrame(f"{value!r} is outside [0, {size}]")
    return value / size


def _from_norm(value: float, size: int) -> int:
    return min(math.floor(_unit(value) * size), size - 1)


def inside(point: Point, box: Box) -> bool:
    """Whether a point lies in a box (left, top, width, height), edges included."""
    left, top, width, height = box
    return left <= point[0] <= left + width and top <= point[1] <= top + height


NEAR: Final = 0.01 * math.sqrt(2)  # normalised distance up to which a point counts as the same
DECAY: Final = 120.0


def distance_score(distance: float) -> float:
    """1 up to NEAR, then an exponential decay: half at .020, a tenth at .033, of normalised coordinates.

    Source: AgentNetBench, the offline benchmark of OpenCUA (2025), its rule for a click outside every box.
    """
    return 1.0 if distance <= NEAR else math.exp(-DECAY * (distance - NEAR))


@dataclass(frozen=True)
class Family:
    """How a model family resizes images: sides are multiples of `factor`, the area within the bounds (pixels)."""

    factor: int
    min_pixels: int
    max_pixels: int


FrameName = Literal["normalised", "absolute", "smart-resized"]
MAX_ASPECT: Final = 200

FAMILIES: Final[dict[str, Family]] = {
    "qwen2.5-vl": Family(28, 3_136, 12_845_056),
    "opencua": Family(28, 3_136, 12_845_056),
    "qwen3-vl": Family(32, 65_536, 16_777_216),
    "ui-tars": Family(28, 100 * 28**2, 16_384 * 28**2),
}


def smart_resize(height: int, width: int, family: Family) -> tuple[int, int]:
    """(height, width) after the Qwen-VL processors' resizing. Raises ValueError for an aspect ratio above 200.

    Each side goes to the nearest multiple of the factor, halves to the even one; an image above the largest area
    shrinks, one below the smallest grows, aspect ratio roughly kept.
    """
    if min(height, width) < 1:
        raise ValueError(f"an image of {width}x{height} has no pixels")
    if max(height, width) / min(height, width) > MAX_ASPECT:
        raise ValueError(f"aspect ratio above {MAX_ASPECT}: {width}x{height}")
    factor = family.factor
    new_h, new_w = round(height / factor) * factor, round(width / factor) * factor
    if new_h * new_w > family.max_pixels:
        beta = math.sqrt(height * width / family.max_pixels)
        new_h = max(factor, math.floor(height / beta / factor) * factor)
        new_w = max(factor, math.floor(width / beta / factor) * factor)
    elif new_h * new_w < family.min_pixels:
        beta = math.sqrt(family.min_pixels / (height * width))
        new_h = math.ceil(height * beta / factor) * factor
        new_w = math.ceil(width * beta / factor) * factor
    return new_h, new_w
