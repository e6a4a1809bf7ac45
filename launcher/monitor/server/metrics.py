"""The metrics of runs as curves for the browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from launcher.protocol.read import read_run
from launcher.report.metrics import RunMetrics, read_metrics
from launcher.report.svg import thin
from launcher.store.base import Store

CHARTS: Final = 24


def run_metrics(store: Store, run: str) -> RunMetrics:
    """All values of all attempts. Raises NotFound, Unreachable."""
    return read_metrics(store, read_run(store, run))


def charts(found: Sequence[tuple[str, RunMetrics]]) -> list[dict[str, Any]]:
    """A chart for each metric of the first run, with a line for each run that has it; long lines are thinned, and keep
    their extremes. A metric with one value is no curve."""
    names = [name for name, points in found[0][1].values.items() if len(points) > 1] if found else []
    return [
        {
            "metric": name,
            "lines": [
                {"run": run, "points": thin(metrics.values[name])} for run, metrics in found if name in metrics.values
            ],
        }
        for name in sorted(names, key=_place)[:CHARTS]
    ]


def _place(name: str) -> tuple[bool, str]:
    return name in ("learning_rate", "grad_norm", "epoch"), name


def as_csv(metrics: RunMetrics) -> str:
    """`metric,step,value` lines. A text that a spreadsheet would run as a formula is quoted."""
    lines = ["metric,step,value"]
    for name, points in sorted(metrics.values.items()):
        shown = "'" + name if name[:1] in "=+-@\t\r" else name
        quoted = '"' + shown.replace('"', '""') + '"'
        lines += [f"{quoted},{step!r},{value!r}" for step, value in points]
    return "\n".join(lines) + "\n"
