"""Small charts as inline SVG: curves over steps, estimates with their intervals. Colours come from the page's CSS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from launcher.report.html import Markup, tag

# the width of a card on a telephone: the page's text of 12 px in these units stays above 11 px there
WIDTH, HEIGHT = 320, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 10, 38
MAX_POINTS = 400  # points of a curve, at most; more points than pixels only make the page larger
SMOOTH_FROM = 60  # a curve with this many points also gets a moving average


@dataclass(frozen=True)
class Series:
    """A curve: (step, value) pairs sorted by step, all finite."""

    label: str
    points: Sequence[tuple[float, float]]


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers in [low, high]; one number if the range is empty."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.75)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Labels with the same number of decimals; thousands as k and millions as M."""
    top = max(map(abs, ticks), default=0.0)
    unit, suffix = (1e6, "M") if top >= 1e6 else (1e3, "k") if top >= 1e4 else (1.0, "")
    scaled = [tick / unit for tick in ticks]
    slack = 1e-3 * (scaled[1] - scaled[0]) if len(scaled) > 1 else 1e-3 * abs(scaled[0]) if scaled else 0.0
    if 0 < top < 1e-3:
        digits = next((d for d in range(3, 16) if all(abs(v - float(f"{v:.{d}g}")) <= slack for v in scaled)), 16)
        return [f"{tick:.{digits}g}".replace("e-0", "e-").replace("-", "−", tick < 0) for tick in ticks]
    decimals = next((d for d in range(12) if all(abs(v - round(v, d)) <= slack for v in scaled)), 12)
    return [f"{value:.{decimals}f}{suffix}".replace("-", "−") for value in scaled]


def thin(points: Sequence[tuple[float, float]], limit: int = MAX_POINTS) -> list[tuple[float, float]]:
    """At most about `limit` points; each bucket keeps its lowest and highest value, so no spike is lost."""
    if len(points) <= limit:
        return list(points)
    size = math.ceil(len(points) / (limit // 2))
    kept: list[tuple[float, float]] = [points[0]]
    for start in range(0, len(points), size):
        bucket = points[start : start + size]
        kept += sorted({min(bucket, key=lambda p: p[1]), max(bucket, key=lambda p: p[1])})
    return [*kept, points[-1]]


def smooth(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A centred moving average over a twentieth of the points."""
    half = max(2, len(points) // 40)
    sums = [0.0]
    for _, value in points:
        sums.append(sums[-1] + value)
    out = []
    for index, (step, _) in enumerate(points):
        low, high = max(0, index - half), min(len(points), index + half + 1)
        out.append((step, (sums[high] - sums[low]) / (high - low)))
    return out


def curves(
    series: Sequence[Series], label: str, *, x_label: str = "step", stepped: bool = False, top: float | None = None
) -> Markup:
    """One chart; `label` describes it for screen readers. Needs at least one point.

    stepped  a value holds until the next one; such a curve is not smoothed
    top      the vertical axis goes from 0 to it
    """
    xs = [x for curve in series for x, _ in curve.points]
    ys = [y for curve in series for _, y in curve.points]
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = _padded(min(ys), max(ys)) if top is None else (0.0, top)
    if x_low == x_high:
        x_low, x_high = x_low - 1, x_high + 1

    def px(x: float) -> float:
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    parts: list[Markup] = []
    y_ticks = nice_ticks(y_low, y_high, 4)
    for tick, text in zip(y_ticks, tick_labels(y_ticks), strict=True):
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{py(tick):.1f}", y2=f"{py(tick):.1f}", class_="grid"))
        parts.append(tag("text", text, x=LEFT - 8, y=f"{py(tick) + 4:.1f}", class_="tick end"))
    x_ticks = nice_ticks(x_low, x_high, 5)
    if all(x == int(x) for x in xs):
        x_ticks = [tick for tick in x_ticks if tick == int(tick)]
    for tick, text in zip(x_ticks, tick_labels(x_ticks), strict=True):
        parts.append(
            tag(
                "line",
                x1=f"{px(tick):.1f}",
                x2=f"{px(tick):.1f}",
                y1=HEIGHT - BOTTOM,
                y2=HEIGHT - BOTTOM + 4,
                class_="axis",
            )
        )
        parts.append(tag("text", text, x=f"{px(tick):.1f}", y=HEIGHT - BOTTOM + 17, class_="tick mid"))
    parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM, class_="axis"))
    parts.append(tag("text", x_label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 5, class_="tick mid"))

    def line(points: Sequence[tuple[float, float]], css: str) -> Markup:
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)
        return tag("polyline", points=path, class_=css)

    for index, curve in enumerate(series):
        colour = f"s{index % 6}"
        if len(curve.points) == 1:
            (x, y), *_ = curve.points
            parts.append(tag("circle", cx=f"{px(x):.1f}", cy=f"{py(y):.1f}", r=3.5, class_=f"dot {colour}"))
            continue
        if stepped:
            parts.append(line(_corners(curve.points), f"curve {colour}"))
            continue
        noisy = len(curve.points) >= SMOOTH_FROM
        parts.append(line(thin(curve.points), f"curve {colour}{' raw' if noisy else ''}"))
        if noisy:
            parts.append(line(thin(smooth(curve.points)), f"curve {colour}"))
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)


def _corners(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a curve of steps."""
    out = [points[0]]
    for x, y in points[1:]:
        if y != out[-1][1]:
            out += [(x, out[-1][1]), (x, y)]
    return [*out, (points[-1][0], out[-1][1])]


def _padded(low: float, high: float) -> tuple[float, float]:
    """The range of an axis: (low, high) with a margin on both sides; it starts at 0 if the values come close to 0."""
    if low == high:
        pad = abs(low) * 0.1 or 1.0
        return (0.0, 1.0) if low == 0 else (low - pad, high + pad)
    room = (high - low) * 0.06
    if 0 <= low <= (high - low) * 0.5:
        return 0.0, high + room
    return low - room, high + room


@dataclass(frozen=True)
class RateEstimate:
    """A value with bounds, all in [0, 1]."""

    label: str
    value: float
    low: float
    high: float


def estimates(rows: Sequence[RateEstimate], label: str) -> Markup:
    """Rates as dots with their intervals, one row each, on one axis from 0 to 100 %. The figures stand beside short
    labels and below long ones."""
    margin, width, below = 10, WIDTH, 16 * any(len(row.label) > 20 for row in rows)
    row_height = 46 + below
    bottom = row_height * len(rows) + 2
    parts: list[Markup] = []

    def px(value: float) -> str:
        return f"{margin + value * (width - 2 * margin):.1f}"

    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(tag("line", x1=px(tick), x2=px(tick), y1=0, y2=bottom, class_="grid"))
        anchor, x = ("start", "0") if tick == 0 else ("end", str(width)) if tick == 1 else ("mid", px(tick))
        parts.append(tag("text", f"{100 * tick:.0f} %", x=x, y=bottom + 16, class_=f"tick {anchor}"))
    for index, row in enumerate(rows):
        top = row_height * index
        y = top + 31 + below
        name = row.label if len(row.label) <= 40 else f"{row.label[:39]}…"
        colour = f"s{index % 6}"
        figures = f"{100 * row.value:.1f} %  ({100 * row.low:.1f} – {100 * row.high:.1f})"
        parts.append(tag("text", name, x=margin, y=top + 16, class_="label"))
        parts.append(tag("text", figures, x=width - margin, y=top + 16 + below, class_="label end"))
        parts.append(tag("line", x1=px(row.low), x2=px(row.high), y1=y, y2=y, class_=f"whisker {colour}"))
        for end in (row.low, row.high):
            parts.append(tag("line", x1=px(end), x2=px(end), y1=y - 5, y2=y + 5, class_=f"whisker {colour}"))
        parts.append(tag("circle", cx=px(row.value), cy=y, r=5, class_=f"dot {colour}"))
    return tag("svg", *parts, viewBox=f"0 0 {width} {bottom + 22}", role="img", aria_label=label)


@dataclass(frozen=True)
class BarGroup:
    """A row of bars, one for each agent; None: this agent has no value."""

    label: str
    values: Sequence[float | None]


def bars(groups: Sequence[BarGroup], label: str, top: float, *, unit: str = "") -> Markup:
    """Groups of horizontal bars on one axis from 0 to `top`, each bar with its value."""
    width, left, right, thick, gap = 480, 190, 56, 12, 10
    parts: list[Markup] = []
    y = 4.0
    for group in groups:
        middle = y + thick * len(group.values) / 2
        name = group.label if len(group.label) <= 24 else f"{group.label[:23]}…"
        parts.append(tag("text", name, x=left - 8, y=f"{middle + 4:.1f}", class_="label end"))
        for k, value in enumerate(group.values):
            long = (width - left - right) * (value or 0.0) / (top or 1.0)
            if value is not None:
                shape = {"x": left, "y": f"{y + 1:.1f}", "width": f"{max(long, 0.5):.1f}", "height": thick - 2}
                parts.append(tag("rect", **shape, class_=f"bar s{k % 6}"))
            told = "–" if value is None else f"{value:.0f}{unit}"
            parts.append(tag("text", told, x=f"{left + long + 5:.1f}", y=f"{y + thick - 2:.1f}", class_="tick"))
            y += thick
        y += gap
    parts.insert(0, tag("line", x1=left, x2=left, y1=0, y2=f"{y:.1f}", class_="axis"))
    return tag("svg", *parts, viewBox=f"0 0 {width} {y:.0f}", role="img", aria_label=label)
