"""Prints one run in full: its attempts with their reasons, its members, its files, and commands that show more."""

from __future__ import annotations

from typing import Any

from launcher import safe_text
from launcher.cli.printing import output
from launcher.cli.printing.units import clock, duration, steps
from launcher.protocol.deleted import why_missing
from launcher.protocol.fold import Status, fold, moved
from launcher.protocol.read import read_run
from launcher.protocol.view import AttemptView, RunView
from launcher.reasons import RULES
from launcher.spec.model import backend_order
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.verbs.status import DAMAGED, Line


def detailed(store: Store, run: str) -> dict[str, Any]:
    """The fields that `-o json` adds for a single run."""
    view = read_run(store, run)
    return {
        "attempt_list": attempts(view),
        "members": members(fold(view)),
        "path": f"{store.url}/{RunKeys(run).prefix}",
        "deleted": why_missing(store, run) or None if view.result is not None else None,
    }


def attempts(view: RunView) -> list[dict[str, Any]]:
    return [_attempt(view, attempt) for attempt in view.attempts]


def _attempt(view: RunView, attempt: AttemptView) -> dict[str, Any]:
    worst = max(attempt.exits.values(), key=lambda end: RULES[end.reason].severity, default=None)
    started = min((claim.time for claim in attempt.claims.values() if claim.time), default=None)
    ended = max((end.ended for end in attempt.exits.values() if end.ended), default=None)
    latest = attempt is view.attempts[-1] and view.result is None
    told = moved(attempt) if attempt.moved_to else ""
    latest = latest or bool(told)  # nothing computed in it, so nothing was lost
    return {
        "attempt": attempt.number,
        "reason": str(worst.reason) if worst else None if latest else "lost",
        "member": worst.member if worst else None,
        "code": worst.code if worst else None,
        "message": worst.message if worst else attempt.broken.why if attempt.broken else told,
        "started": started,
        "ended": ended,
        "checkpoint": attempt.checkpoints[-1] if attempt.checkpoints else None,
        "outputs": sorted(attempt.outputs),
    }


def members(status: Status) -> list[dict[str, Any]]:
    return [
        {
            "member": member.member,
            "host": member.host,
            "phase": member.phase,
            "step": member.step,
            "reason": str(member.reason) if member.reason else None,
            "seen": member.seen,
            "silent": member.stale,
            "usage": member.usage,
        }
        for member in status.members
    ]


def print_details(store: Store, line: Line, now: float) -> None:
    if line.state == DAMAGED:
        print(f"run    {line.run}\nstate  {output.paint(line.state, '31')}\n       {safe_text.line(line.detail)}")
        return
    view = read_run(store, line.run)
    status = fold(view)
    state = output.paint(line.state, {"failed": "31", "succeeded": "32"}.get(line.state, "1"))
    why = f"  {line.reason}" if line.reason and line.reason != line.state else ""
    facts = [("run", line.run), ("state", state + safe_text.line(why))]
    if line.detail:
        facts.append(("", line.detail))
    if not line.final and line.phase:
        progress = [line.phase, steps(line.step, line.total)]
        if line.progress is not None:
            progress.append(f"{100 * line.progress:.0f} %")
        if line.eta is not None:
            progress.append(f"{duration(line.eta)} to go")
        facts.append(("progress", "  ".join(filter(None, progress))))
    if line.message and not line.final:
        facts.append(("message", line.message))
    if line.stale:
        facts.append(("", "no heartbeat for longer than the job's `stale` time"))
    if line.lost:
        facts.append(("lost", f"{line.lost} bytes of logs and metrics: a disk was full"))
    if line.left_out:
        facts.append(("left out", f"{line.left_out} files of its outputs, which no store can keep; the log says which"))
    if line.resumed:
        facts.append(("resumed", f"{line.resumed}, whose checkpoints other packages or another image made"))
    for event in view.events:
        if event.kind == "warning" and event.attempt == line.attempt:
            facts.append(("warning", f"{clock(event.time)}: {event.message}"))
    if line.checkpoint is not None:
        facts.append(("checkpoint", f"step {line.checkpoint}"))
    facts.append(("ran", duration(line.running, fine=True)))
    if line.created:
        facts.append(("age", f"{duration(now - line.created)}, since {clock(line.created)}"))
    job = view.job
    if job is not None:
        facts.append(("backend", ", then ".join(backend_order(job)[: view.turn + 1])))
        if job.labels:
            facts.append(("labels", ", ".join(f"{key}={value}" for key, value in sorted(job.labels.items()))))
        if job.limits.deadline is not None:
            facts.append(("deadline", f"{duration(job.limits.deadline)} of running"))
    facts.append(("files", f"{store.url}/{RunKeys(line.run).prefix}"))
    if line.final and (gone := why_missing(store, line.run)):
        facts.append(("", gone))
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print(f"{name:<{width}}  {value if name == 'state' else safe_text.line(value)}".rstrip())
    _print_attempts(view)
    if len(status.members) > 1 or not line.final:
        _print_members(status, now)
    print(f"\nlogs: launcher logs {line.run}{'' if line.final else ' --follow'}", end="")
    print(f"    again: launcher retry {line.run}" if line.state in ("failed", "cancelled") else "")


def _print_attempts(view: RunView) -> None:
    rows = [
        {
            "attempt": entry["attempt"],
            "ended": entry["reason"] or "-",
            "code": entry["code"],
            "began": clock(entry["started"]),
            "took": duration(entry["ended"] - entry["started"], fine=True)
            if entry["ended"] and entry["started"]
            else None,
            "checkpoint": entry["checkpoint"],
            "message": entry["message"],
        }
        for entry in attempts(view)
    ]
    if rows:
        print()
        output.show(rows, right=("attempt", "code", "took", "checkpoint"))


def _print_members(status: Status, now: float) -> None:
    rows = [
        {
            "member": member.member,
            "host": member.host,
            "phase": str(member.reason) if member.reason else member.phase,
            "step": steps(member.step, None),
            "seen": f"{duration(now - member.seen)} ago" if member.seen is not None else None,
            "usage": "  ".join(f"{name} {value:.3g}" for name, value in sorted(member.usage.items())),
        }
        for member in status.members
    ]
    if rows:
        print()
        output.show(rows, right=("step", "seen"))
