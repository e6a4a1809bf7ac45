"""A run as every verb prints it with `-o json`."""

from __future__ import annotations

from typing import Any


def record(line: Any, name: str, group: str | None = None) -> dict[str, Any]:
    """The fields of a run: stable names; durations in seconds, times in seconds since the epoch; null for unknown."""
    return {
        "run": line.run,
        "name": name,
        "group": group,
        "state": line.state,
        "attempt": line.attempt,
        "attempts": line.attempts,
        "phase": line.phase or None,
        "step": line.step,
        "total": line.total,
        "progress": line.progress,
        "eta_s": line.eta,
        "checkpoint": line.checkpoint,
        "reason": line.reason or None,
        "detail": line.detail or None,
        "message": line.message or None,
        "stale": line.stale,
        "lost_bytes": line.lost,
        "left_out": line.left_out,
        "resumed": line.resumed or None,
        "created": line.created,
        "ended": line.ended,
        "running_s": line.running,
        "backend": line.backend,
        "labels": line.labels,
    }
