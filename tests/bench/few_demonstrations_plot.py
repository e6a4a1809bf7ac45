"""Draws success against the number of demonstrations, as an SVG that needs no style of a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 20, 48
COLOURS: Final = ("#5b6570", "#c8781e", "#1f6fb4", "#3d8f4f")  # of the ways, in their order
APART: Final = 7  # pixels between two ways' points at one number of demonstrations

Solved = Mapping[str, Sequence[bool]]


def draw(grid: Mapping[int, Sequence[Solved]], ways: Sequence[str], share: Callable[[Sequence[float]], float]) -> str:
    """One line for each way, through the mean of its seeds; a small dot for each seed.

    grid  by number of demonstrations, the seeds: of each way, whether it solves each task
    """
    sizes = sorted(grid)

    def across(size: int, way: int) -> float:
        low, high = math.log(sizes[0]), math.log(sizes[-1])
        part = (math.log(size) - low) / (high - low) if high > low else 0.5
        return LEFT + 30 + part * (WIDTH - LEFT - RIGHT - 60) + APART * (way - (len(ways) - 1) / 2)

    def down(value: float) -> float:
        return TOP + (1 - value) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in range(0, 101, 20):
        y = down(tick / 100)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d9dee4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick} %</text>')
    for size in sizes:
        x = across(size, 0) + APART * (len(ways) - 1) / 2
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">demonstrations</text>')
    for way, (name, colour) in enumerate(zip(ways, COLOURS, strict=True)):
        means = []
        for size in sizes:
            values = [share(seed[name]) for seed in grid[size]]
            x = across(size, way)
            parts += [
                f'<circle cx="{x:.1f}" cy="{down(each):.1f}" r="2" fill="none" stroke="{colour}"/>' for each in values
            ]
            means.append((x, down(share(values))))
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in means)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in means]
        y = TOP + 16 + 20 * way
        parts.append(f'<circle cx="{WIDTH - RIGHT + 18}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 28}" y="{y}">{escape(name)}</text>')
    told = "Tasks solved against the number of demonstrations, by way"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'role="img" aria-label="{told}">',
            "<style>text{font:12.5px system-ui,-apple-system,Roboto,'DejaVu Sans',sans-serif;fill:#1d2733}</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )
