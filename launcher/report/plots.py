"""Plots for a paper: SVG files that stand alone, in the colours of the page's light theme."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from launcher.report.agents import AgentResults, by_benchmark, failure_counts, grouped, solved
from launcher.report.html import Markup, join, tag
from launcher.report.side_by_side import budget_series, success_estimates
from launcher.report.svg import BarGroup, bars, curves, estimates
from launcher.results.files import write_whole
from launcher.results.read import DetailedResult

STYLE: Final = """
text { font: 11px sans-serif; fill: #333; }
text.end { text-anchor: end; } text.mid { text-anchor: middle; } text.label { font-size: 12.5px; fill: #111; }
text.title { font-size: 13px; font-weight: bold; fill: #111; }
line.grid { stroke: #e4e5e7; } line.axis { stroke: #666c74; }
.curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .curve.raw { stroke-width: 1; opacity: .28; }
.whisker { stroke-width: 2; } .dot { stroke: none; } .bar { stroke: none; }
"""
COLOURS: Final = ("#2563c9", "#d26a1b", "#19875a", "#8a4fc4", "#b3356f", "#6b7280")
MARGIN: Final = 12
ROW: Final = 18  # height of a line of the legend


def write_plots(agents: Sequence[AgentResults], folder: Path) -> list[Path]:
    """Writes the plots of each benchmark: success with intervals, success within a number of answers, classes of
    failures, success by program and by difficulty; gives the files. Raises BadInput for one that cannot be written."""
    written = []
    for title, part in by_benchmark(agents):
        labels = [agent.label for agent in part]
        charts: list[tuple[str, str, Markup, Sequence[str]]] = []
        if rows := success_estimates(part):
            charts.append(("success", "Success, 95 % intervals", estimates(rows, "success"), ()))
        if series := budget_series(part):
            chart = curves(series, "success within", x_label="answers", stepped=True, top=1.0)
            charts.append(("within", "Solved within so many answers (lower bound)", chart, [s.label for s in series]))
        if classes := failure_counts(part):
            groups = [BarGroup(row.kind, row.counts) for row in classes]
            most = max(count for row in classes for count in row.counts)
            charts.append(("failures", "Why episodes failed", bars(groups, "failures", most), labels))
        for dimension in ("program", "difficulty"):
            if found := grouped(part, dimension):
                groups = [BarGroup(name or "not told", [_rate(tasks) for tasks in each]) for name, each in found]
                chart = bars(groups, f"success by {dimension}", 100, unit=" %")
                charts.append((dimension, f"Success by {dimension}", chart, labels))
        for name, heading, chart, names in charts:
            path = folder / f"{file_part(title)}-{name}.svg"
            while path in written:  # two benchmarks that are one name in a path
                path = path.with_name(f"{path.stem}-2.svg")
            write_whole(path, standalone(chart, heading, title, names).encode())
            written.append(path)
    return written


def _rate(tasks: Sequence[DetailedResult]) -> float | None:
    share = solved(tasks)
    return 100 * share.solved / share.n if share.n else None


def file_part(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:80] or "benchmark"


def standalone(chart: Markup, title: str, benchmark: str, names: Sequence[str]) -> str:
    """A chart of the page as a whole SVG file, with its title, the benchmark and a legend."""
    match = re.match(r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)"', chart)
    assert match is not None
    width, height = float(match[1]), float(match[2])
    inner = Markup(f'<svg x="{MARGIN}" y="{MARGIN + 2 * ROW}" width="{width:g}" height="{height:g}"{chart[4:]}')
    top = MARGIN + 2 * ROW + height + 14
    legend: list[Markup] = []
    for k, name in enumerate(names):
        y = top + k * ROW
        legend.append(tag("rect", x=MARGIN, y=f"{y:g}", width=14, height=4, fill=COLOURS[k % len(COLOURS)]))
        legend.append(tag("text", name, x=MARGIN + 20, y=f"{y + 6:g}"))
    full = (width + 2 * MARGIN, top + len(names) * ROW)
    colours = "".join(
        f".s{k} {{ stroke: {colour}; }} .dot.s{k}, .bar.s{k} {{ fill: {colour}; stroke: none; }}\n"
        for k, colour in enumerate(COLOURS)
    )
    body = join(
        [
            tag("title", f"{benchmark}: {title}"),
            tag("style", Markup(STYLE + colours)),
            tag("rect", width="100%", height="100%", fill="#ffffff"),
            tag("text", title, x=MARGIN, y=MARGIN + 8, class_="title"),
            tag("text", benchmark, x=MARGIN, y=MARGIN + 8 + ROW),
            inner,
            *legend,
        ]
    )
    size = f'width="{full[0]:g}" height="{full[1]:g}" viewBox="0 0 {full[0]:g} {full[1]:g}"'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" {size}>{body}</svg>\n'
