"""docs/reference/metrics.md: the numbers that Prometheus reads, from the tables in the source."""

from __future__ import annotations

from eval.desktops.server import app
from launcher import exposition

HEAD = (
    """\
# Metrics

<!-- written by tools/reference/metrics.py: `make golden` -->

What Prometheus can read of Slipway. All of it is off until you ask for it:

| part | switched on by | read at |
|---|---|---|
| monitor | `launcher monitor --metrics 127.0.0.1:9464` | `/metrics` of that port; there is no token |
| supervisor, runtime, reaper | `SLIPWAY_TEXTFILES=FOLDER` | files `slipway-*.prom` in the folder |
| desktop | `python -m eval.desktops.server --metrics` | `/metrics` of the desktop's address, with its token |

- Whoever can reach the monitor's port reads the names and the numbers of runs, and nothing else.
- The variable is set for the command that submits (the supervisor and the runtimes of this machine get it) or for
  `launcher reap`. node_exporter reads the folder that its `--collector.textfile.directory` names.
- A runtime in a container writes no files: the monitor tells of its run from the records.

Alert rules and a dashboard for Grafana are in [k8s/components/monitoring](../../k8s/components/monitoring);
[how to set them up](../howto/team.md#metrics-and-alerts).

"""
    """\
| name | kind | labels | from | meaning |
|---|---|---|---|---|
"""
)
LABELS = {
    "slipway_runs": "state",
    "slipway_run_info": "run, job, backend, state",
    "slipway_supervisor_runs": "queue, phase",
    "slipway_supervisor_ended_total": "queue, outcome",
    "slipway_reaper_actions": "store, did",
    "slipway_runs_left_out": "",
    "slipway_desktop_started_timestamp_seconds": "",
    "slipway_desktop_requests_total": "route, status",
    "slipway_desktop_request_seconds_total": "route",
}
OF_PART = {
    "slipway_run_": "run",
    "slipway_monitor_": "store",
    "slipway_supervisor_": "queue",
    "slipway_runtime_": "run, member",
    "slipway_reaper_": "store",
}


def page() -> str:
    rows = [(name, kind, meaning, part) for name, (kind, meaning, part) in exposition.METRICS.items()]
    rows += [(name, kind, meaning, "desktop") for name, (kind, meaning) in app.METRICS.items()]
    return HEAD + "".join(
        f"| `{name}` | {kind} | {_labels(name)} | {part} | {meaning} |\n" for name, kind, meaning, part in rows
    )


def _labels(name: str) -> str:
    if name in LABELS:
        return LABELS[name]
    return next(labels for prefix, labels in OF_PART.items() if name.startswith(prefix))
