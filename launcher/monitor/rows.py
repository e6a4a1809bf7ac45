"""The records of a run as rows of the database. Pure: the same records give the same rows, whenever they are read.

So no row depends on the clock: what ages (the time since the last sign of life, the cost of a run that still holds its
machines) is computed when a page is made, from what is here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from launcher.monitor.tables import identify
from launcher.protocol.fold import State, Status, fold
from launcher.protocol.records import Beat, Exit
from launcher.protocol.view import AttemptView, RunView
from launcher.reasons import RULES
from launcher.results.run_cost import held_times, machine_times
from launcher.spec.hashing import encode_job, work_hash
from launcher.spec.model import Limits, ResolvedJob, backend_order
from launcher.spec.prices.rates import PricedRun

Row = dict[str, Any]
LONGEST: Final = 65_536  # characters of one text; an agent may answer with megabytes
LARGEST: Final = 2**63 - 1
METHODS: Final = ("sft", "dpo", "reward", "grpo", "rl")  # training.METHOD is a program that trains
ENDED: Final = tuple(str(state) for state in State if state.final)
GOING_ON: Final = tuple(str(state) for state in State if not state.final)


@dataclass(frozen=True)
class RunRows:
    """The rows of one run by table. `digest` is of all of them: equal rows need not be written again."""

    run: Row
    parts: Mapping[str, list[Row]] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode([self.run, self.parts], order="sorted")).hexdigest()


def text(value: object, longest: int = LONGEST) -> str:
    """A text that any database takes: without NUL and lone surrogates, cut after `longest` characters."""
    shown = value if isinstance(value, str) else "" if value is None else str(value)
    if "\0" in shown or not shown.isprintable():
        shown = shown.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8", "replace")
    return shown if len(shown) <= longest else f"{shown[:longest]}… ({len(shown) - longest:,} more characters)"


def number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: object) -> int | None:
    """A whole number of 64 bits; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and abs(value) <= LARGEST else None


def _method(job: ResolvedJob) -> str:
    """The method of a job whose command is a trainer of ours, else ""."""
    words = {word for role in job.roles.values() for word in role.command}
    return next((method for method in METHODS if f"training.{method}" in words), "")


def run_id(store_id: int, run: str) -> int:
    return identify("run", store_id, run)


def rows_of(store_id: int, view: RunView, group: str = "", name: str = "", deleted: bool = False) -> RunRows:
    """The rows of a run. `group`: the submit that it belongs to; `name`: what the group calls it."""
    at = latest(view)
    view = replace(view, now=at, settable=False, watched={})
    status = fold(view, at)
    key, job, result = run_id(store_id, view.run), view.job, view.result
    source = result.source(view.run) if result is not None else ("", 0)
    told = status.step if not status.state.final or status.step == status.total else None
    run: Row = {
        "id": key,
        "store_id": store_id,
        "run": text(view.run),
        "name": text(name or status.name),
        "state": str(status.state),
        "backend": text(backend_order(job)[view.turn]) if job is not None else "",
        "group_name": text(group),
        "work": (result.work if result is not None and result.work else work_hash(job)) if job is not None else "",
        "labels": _json(dict(job.labels)) if job is not None else "{}",
        "attempt": status.attempt,
        "attempts": status.attempts,
        "phase": text(status.phase),
        "step": number(told),
        "total": number(status.total) if told is not None else None,
        "eta": number(status.eta),
        "message": text(status.message),
        "checkpoint": whole(status.checkpoint),
        "reason": str(status.reason or ""),
        "detail": text(status.detail),
        "created": number(view.made if view.made is not None else status.started),
        "started": number(status.started),
        "ended": number(status.ended),
        "seen": _seen(view),
        "stale_after": job.timing.stale if job is not None else None,
        "running": number(status.running),
        "gpus": sum(role.replicas * role.resources.gpus for role in job.roles.values()) if job is not None else None,
        "priced": _json(PricedRun.of(job)) if job is not None else "",
        "held": _json(held_times(view)),
        "machines": _json(machine_times(view)),
        "limits": _json(job.limits if job is not None else Limits()),
        "source_run": text(source[0]),
        "source_attempt": source[1],
        "job": encode_job(job).decode() if job is not None else "",
        "deleted": int(deleted),
        "trains": _method(job) if job is not None else "",
    }
    parts = {
        "attempts": [_attempt(key, attempt) for attempt in view.attempts],
        "members": [row for attempt in view.attempts for row in _members(key, attempt, job)],
        "status_history": _history(key, view, status),
        "events": [
            {
                "run_id": key,
                "attempt": event.attempt,
                "writer": text(event.writer),
                "seq": event.seq,
                "at": number(event.time),
                "kind": text(event.kind),
                "message": text(event.message),
                "fields": _json(event.fields),
            }
            for event in view.events
        ],
        "checkpoints": [
            {"run_id": key, "attempt": attempt.number, "step": step}
            for attempt in view.attempts
            for step in attempt.checkpoints
        ],
        "costs": [
            {
                "run_id": key,
                "number": index,
                "started": number(held.start),
                "seconds": number(held.seconds),
                "live": int(held.live),
                "turn": held.turn,
            }
            for index, held in enumerate(held_times(view))
        ],
    }
    return RunRows(run, parts)


def latest(view: RunView) -> float:
    """The newest time that the store gave a record of the run: what is said about it is said as of then."""
    times = [view.made or 0.0]
    for attempt in view.attempts:
        times += [*attempt.claimed.values(), *(modified for _, modified in attempt.beats.values())]
    return max(times)


def _seen(view: RunView) -> float | None:
    seen = [attempt.seen(member) for attempt in view.attempts[-1:] for member in attempt.claims]
    return max((time for time in seen if time is not None), default=None)


def _json(value: object) -> str:
    return text(msgspec.json.encode(value, order="sorted").decode(), 16 * LONGEST)


def _attempt(key: int, attempt: AttemptView) -> Row:
    starts = [claim.time for claim in attempt.claims.values() if claim.time] or list(attempt.claimed.values())
    ends = [end.ended for end in attempt.exits.values() if end.ended]
    told = [attempt.exits.get(member) or beat for member, (beat, _) in sorted(attempt.beats.items())]
    worst = max(attempt.exits.values(), key=lambda end: (RULES[end.reason].severity, end.member), default=None)
    return {
        "run_id": key,
        "number": attempt.number,
        "started": number(min(starts, default=None)),
        "ended": number(max(ends, default=None)),
        "reason": str(worst.reason) if worst is not None else "",
        "message": text(worst.message) if worst is not None else "",
        "moved_to": text(attempt.moved_to),
        "outputs": _json([sorted(attempt.outputs), [dict(record.outputs) for record in told]]),
    }


def _members(key: int, attempt: AttemptView, job: ResolvedJob | None) -> Iterator[Row]:
    for member in sorted(attempt.claims):
        beat = attempt.beats[member][0] if member in attempt.beats else None
        end = attempt.exits.get(member)
        told: Beat | Exit | None = end or beat
        usage = told.usage if told is not None else {}
        yield {
            "run_id": key,
            "attempt": attempt.number,
            "member": text(member),
            "host": text(attempt.claims[member].placement.host),
            "phase": "ended" if end is not None else text(beat.phase) if beat is not None else "waiting",
            "step": number(beat.step) if beat is not None else None,
            "seen": number(attempt.seen(member)),
            "reason": str(end.reason) if end is not None else "",
            "cpus": number(usage.get("cpus")),
            "memory": number(usage.get("memory")),
            "gpu": number(usage.get("gpu")),
            "gpu_memory": number(usage.get("gpu_memory")),
            "log": whole(told.log) if told is not None else None,
        }


def _history(key: int, view: RunView, status: Status) -> list[Row]:
    """Every state that the records tell: the first, those of the attempts in the order of their times, the last. The
    clocks of the store and of the machines differ, so only times of the same kind are compared."""
    found: list[tuple[float, int, str, int | None, str, str]] = []
    if view.made is not None:
        found.append((view.made, 0, "queued", None, "", ""))
    for attempt in view.attempts:
        row = _attempt(key, attempt)
        if row["started"] is not None:
            moved = f"moved to {attempt.moved_to}" if attempt.moved_to else ""
            found.append((row["started"], 1, "starting", attempt.number, "", moved))
        if row["ended"] is not None:
            found.append((row["ended"], 2, "ended", attempt.number, row["reason"], row["message"]))
    if status.state.final:
        found.append(
            (status.ended or 0.0, 3, str(status.state), status.attempt, str(status.reason or ""), status.detail)
        )
    return [
        {
            "run_id": key,
            "number": index,
            "at": number(at),
            "state": state,
            "attempt": attempt_number,
            "reason": reason,
            "message": text(message),
        }
        for index, (at, _, state, attempt_number, reason, message) in enumerate(sorted(found, key=_place))
    ]


def _place(told: tuple[float, int, str, int | None, str, str]) -> tuple[int, float, int]:
    at, kind = told[:2]
    return {0: 0, 3: 2}.get(kind, 1), at, kind
