"""Numbers in Prometheus' text format, for an endpoint or for the folder that node_exporter's textfile collector reads.

The names of all numbers of this launcher stand here, with their meaning: docs/reference/metrics.md is made of them. The
format has four kinds of lines, so it is written here: the runtime stands in every image, and should need no package
for it.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

TEXTFILES: Final = "SLIPWAY_TEXTFILES"  # the collector's folder; without it nothing is written
TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COUNTER, GAUGE = "counter", "gauge"
METRICS: Final = {
    # name: (kind, what it is, who exposes it)
    "slipway_runs": (GAUGE, "Runs by state.", "monitor"),
    "slipway_runs_left_out": (GAUGE, "Runs that go on, too many for values of their own.", "monitor"),
    "slipway_run_info": (GAUGE, "1 for each run that has not ended: its job and its backend.", "monitor"),
    "slipway_run_seen_timestamp_seconds": (GAUGE, "Last sign of life of a run that has started.", "monitor"),
    "slipway_run_stale_seconds": (GAUGE, "Silence after which the run's attempt counts as dead.", "monitor"),
    "slipway_run_running_seconds": (GAUGE, "For how long its command has run, all attempts together.", "monitor"),
    "slipway_run_deadline_seconds": (GAUGE, "Its limits.deadline.", "monitor"),
    "slipway_run_held_seconds": (GAUGE, "For how long it has held its machines.", "monitor"),
    "slipway_run_paid_seconds": (GAUGE, "For how long its budget lets it hold them.", "monitor"),
    "slipway_run_progress_ratio": (GAUGE, "Its step over its total.", "monitor"),
    "slipway_run_gpu_ratio": (GAUGE, "Mean use of its GPUs.", "monitor"),
    "slipway_monitor_pass_timestamp_seconds": (GAUGE, "When the monitor last read the whole store.", "monitor"),
    "slipway_monitor_problems": (GAUGE, "Runs and stores that the last pass could not read.", "monitor"),
    "slipway_supervisor_seen_timestamp_seconds": (GAUGE, "When the supervisor last looked at its queue.", "supervisor"),
    "slipway_supervisor_runs": (GAUGE, "Queued runs by phase.", "supervisor"),
    "slipway_supervisor_ended_total": (COUNTER, "Runs that left the queue since the supervisor started.", "supervisor"),
    "slipway_supervisor_store_failures_total": (COUNTER, "Requests to a store that failed.", "supervisor"),
    "slipway_runtime_beat_timestamp_seconds": (GAUGE, "Last heartbeat of a rank that reached the store.", "runtime"),
    "slipway_runtime_beat_failures_total": (COUNTER, "Heartbeats that did not reach the store.", "runtime"),
    "slipway_runtime_running_seconds": (GAUGE, "For how long the command has run in this attempt.", "runtime"),
    "slipway_runtime_lost_bytes": (GAUGE, "Bytes of logs and metrics lost on a full disk.", "runtime"),
    "slipway_reaper_success_timestamp_seconds": (GAUGE, "When a reaper last saw all it should see.", "reaper"),
    "slipway_reaper_seen_timestamp_seconds": (GAUGE, "When a reaper last ended, whatever it saw.", "reaper"),
    "slipway_reaper_actions": (GAUGE, "What its last round did, by kind.", "reaper"),
}  # fmt: skip

Sample = tuple[Mapping[str, str], float | None]


class MetricFamily(NamedTuple):
    """All values of one name; None is left out."""

    name: str
    samples: Iterable[Sample]


def text(families: Iterable[MetricFamily]) -> str:
    """The text of an answer or of a file. Raises KeyError for a name that METRICS lacks."""
    lines: list[str] = []
    for family in families:
        kind, meaning, _ = METRICS[family.name]
        lines += [f"# HELP {family.name} {meaning}", f"# TYPE {family.name} {kind}"]
        for labels, value in family.samples:
            if value is None:
                continue
            inner = ",".join(f'{name}="{_escaped(label)}"' for name, label in labels.items())
            lines.append(f"{family.name}{f'{{{inner}}}' if inner else ''} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def folder(environ: Mapping[str, str]) -> Path | None:
    """The collector's folder, if the environment names one."""
    return Path(environ[TEXTFILES]) if environ.get(TEXTFILES) else None


def write(folder: Path, name: str, families: Iterable[MetricFamily]) -> None:
    """Replaces `<name>.prom` in the collector's folder. Never raises: nothing depends on these numbers."""
    temporary = folder / f".{name}.{os.getpid()}"
    with contextlib.suppress(OSError):
        temporary.write_bytes(text(families).encode(errors="replace"))
        temporary.chmod(0o644)  # the collector is another user
        temporary.replace(folder / f"{name}.prom")


def value(folder: Path, name: str, metric: str) -> float | None:
    """The first value of a name in a file that `write` made; None without one."""
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / f"{name}.prom").read_text(errors="replace").splitlines():
            if line.startswith((f"{metric} ", f"{metric}{{")):
                return float(line.rpartition(" ")[2])
    return None


def remove(folder: Path, name: str) -> None:
    with contextlib.suppress(OSError):
        (folder / f"{name}.prom").unlink(missing_ok=True)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
