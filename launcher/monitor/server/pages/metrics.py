"""The metrics of runs as curves for the browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from launcher import safe_text
from launcher.protocol.read import read_run
from launcher.report.metrics import RunMetrics, read_metrics
from launcher.report.svg import thin
from launcher.store.base import Store

CHARTS: Final = 60
NAMED: Final = 20  # metrics that a note names
COLUMNS: Final = 4  # metrics of a table of last values


def run_metrics(store: Store, run: str) -> RunMetrics:
    """All values of all attempts. Raises NotFound, Unreachable."""
    return read_metrics(store, read_run(store, run))


def charts(found: Sequence[tuple[str, RunMetrics]], names: Sequence[str]) -> list[dict[str, Any]]:
    """A chart for each of the metrics, with a line for each run that has it; long lines are thinned, and keep their
    extremes."""
    return [
        {
            "metric": safe_text.line(name),
            "lines": [
                {"run": run, "points": thin(metrics.values[name])} for run, metrics in found if name in metrics.values
            ],
        }
        for name in names[:CHARTS]
    ]


def notes(found: Sequence[tuple[str, RunMetrics]], names: Sequence[str]) -> list[str]:
    """What the charts of these metrics do not show."""
    told = [
        f"{safe_text.line(name)} ({count:,}) of {run}"
        for run, metrics in found
        for name, count in sorted(metrics.infinite.items())
    ]
    said = [f"Values that are not finite, and so are not drawn: {_some(told)}."] if told else []
    if more := names[CHARTS:]:
        said.append(f"{len(more):,} more metrics are in the CSV of each run: {_some(more)}.")
    return said


def curves(*runs: RunMetrics) -> list[str]:
    """The metrics of which one of the runs has a curve, the losses first. A metric with one value is no curve."""
    names = {name for metrics in runs for name, points in metrics.values.items() if len(points) > 1}
    return sorted(names, key=_place)


def last_values(found: Sequence[tuple[str, RunMetrics]]) -> dict[str, Any]:
    """The last value of the first metrics for each run, with the lowest and the highest, for a table."""
    names = [name for name in curves(*(metrics for _, metrics in found)) if not _place(name)[0]][:COLUMNS]
    rows = [
        (
            run,
            [
                (points[-1][1], min(ys), max(ys))
                if (points := metrics.values.get(name)) and (ys := [y for _, y in points])
                else None
                for name in names
            ],
        )
        for run, metrics in found
    ]
    return {"names": names, "rows": rows}


def _some(names: Sequence[str]) -> str:
    return ", ".join(
        [*map(safe_text.line, names[:NAMED]), *([f"and {len(names) - NAMED:,} more"] if len(names) > NAMED else [])]
    )


def _place(name: str) -> tuple[bool, bool, str]:
    """The losses first."""
    return name in ("learning_rate", "grad_norm", "epoch"), name.rpartition("/")[2] != "loss", name


def as_csv(metrics: RunMetrics) -> str:
    """`metric,step,value` lines. A text that a spreadsheet would run as a formula is quoted."""
    lines = ["metric,step,value"]
    for name, points in sorted(metrics.values.items()):
        shown = "'" + name if name[:1] in "=+-@\t\r" else name
        quoted = '"' + shown.replace('"', '""') + '"'
        lines += [f"{quoted},{step!r},{value!r}" for step, value in points]
    return "\n".join(lines) + "\n"
