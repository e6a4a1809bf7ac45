"""Episodes as ATIF 1.7, the agent trajectory interchange format of the Harbor project: one JSON file each.

`{agent}/{task}/trajectory.json`, its pictures beside it by path. Step 1 is the user's: the instruction and the first
screen. Each answer is a step of the agent; every action is a tool call by our name of it, with our fields (fractions of
the screen), and the screen after the answer is its observation. Scores stand in `extra`: the format has no place of its
own for them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from eval.episodes import Step, frame_name
from eval.export.source import RecordedTask, copied, own_names, part

SCHEMA: Final = "ATIF-v1.7"
FILE: Final = "trajectory.json"


def write(tasks: Sequence[RecordedTask], out: Path) -> Counter[str]:
    """Writes every kept episode; gives counts: episodes, tasks that were not kept."""
    counts: Counter[str] = Counter()
    for task, name in zip(tasks, own_names(tasks), strict=True):
        counts["tasks whose episode was not kept" if task.episode is None else "episodes"] += 1
        if task.episode is None:
            continue
        folder = out / part(task.record.agent) / name
        folder.mkdir(parents=True)
        for index in range(len(task.episode.steps) + 1):
            if (picture := task.picture(index)) is not None:
                copied(picture, folder / picture.name)
        text = json.dumps(trajectory(task), indent=1)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")
    return counts


def trajectory(task: RecordedTask) -> dict[str, Any]:
    """The document of a task whose episode was kept."""
    episode, record = task.episode, task.record
    assert episode is not None
    first: dict[str, Any] = {"step_id": 1, "source": "user", "message": _parts(episode.instruction, task, 0)}
    if episode.started is not None:
        first["timestamp"] = episode.started
    steps = [first, *(_answer(task, step) for step in episode.steps)]
    usage = [step.usage for step in episode.steps if step.usage is not None]
    costs = [step.cost for step in episode.steps if step.cost is not None]
    final: dict[str, Any] = {"total_steps": len(steps)}
    if usage:
        final |= {
            "total_prompt_tokens": sum(one.input_tokens for one in usage),
            "total_completion_tokens": sum(one.output_tokens for one in usage),
            "total_cached_tokens": sum(one.cached_tokens for one in usage),
        }
    if costs:
        final["total_cost_usd"] = sum(costs)
    extra = {
        "benchmark": record.benchmark,
        "task_id": record.task_id,
        "seed": record.seed,
        "outcome": record.outcome,
        "success": record.success,
        "score": record.score,
        "error": record.error,
        "failure": None if record.failure is None else record.failure.kind,
        "screen": list(episode.screen),
        "duration_ms": episode.duration_ms,
    }
    return {
        "schema_version": SCHEMA,
        "session_id": f"{part(record.agent)}-{episode.episode_id}",
        "trajectory_id": f"{part(record.agent)}-{episode.episode_id}",
        "agent": {"name": record.agent or "unnamed", "version": _version()},
        "steps": steps,
        "final_metrics": final,
        "extra": {name: value for name, value in extra.items() if value is not None},
    }


def _answer(task: RecordedTask, step: Step) -> dict[str, Any]:
    number = step.index + 2
    calls = [
        {"tool_call_id": f"{number}-{k}", "function_name": str(fields.pop("type")), "arguments": fields}
        for k, fields in enumerate((action.to_json() for action in step.actions), 1)
    ]
    results: list[dict[str, Any]] = []
    for k, call in enumerate(step.calls, len(calls) + 1):
        calls.append({"tool_call_id": f"{number}-{k}", "function_name": call.name, "arguments": call.arguments})
        if (told := call.result if call.error is None else call.error) is not None:
            results.append({"source_call_id": f"{number}-{k}", "content": told})
    if task.picture(step.index + 1) is not None:
        results.append({"content": _parts(None, task, step.index + 1)})
    out: dict[str, Any] = {"step_id": number, "source": "agent", "message": step.response or ""}
    if step.time is not None:
        out["timestamp"] = datetime.fromtimestamp(step.time, UTC).isoformat(timespec="milliseconds")
    told_more = {"parse_error": step.parse_error, "refused": step.refused}
    parts = {
        "reasoning_content": step.thought,
        "tool_calls": calls,
        "observation": {"results": results} if results else None,
        "metrics": _metrics(step),
        "extra": {name: value for name, value in told_more.items() if value is not None},
    }
    return out | {name: value for name, value in parts.items() if value}


def _metrics(step: Step) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if step.usage is not None:
        usage = step.usage
        out = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
        out["cached_tokens"] = usage.cached_tokens
    known = {"cost_usd": step.cost, "completion_token_ids": step.token_ids, "logprobs": step.logprobs}
    return out | {name: value for name, value in known.items() if value is not None}


def _parts(text: str | None, task: RecordedTask, index: int) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [] if text is None else [{"type": "text", "text": text}]
    if task.picture(index) is not None:
        parts.append({"type": "image", "source": {"media_type": "image/png", "path": frame_name(index)}})
    return parts


def _version() -> str:
    try:
        return version("slipway-cua")
    except PackageNotFoundError:
        return "unknown"
