"""Results as logs of Inspect (inspect_ai), which its reader and `inspect view` open: one JSON file for each agent.

The files' names begin with a time, as Inspect's own: its tools list no others. A sample is a task: its id is
`task/seed`, its epoch the trial. The messages of a kept episode begin with the instruction and the first screen. Each
answer is the assistant's, with every action as a call of a tool by our name of it; what the calls showed follows, with
the picture in the file. A sample that the infrastructure failed, or that could not run, has an error and no score, and
the metrics count it as not solved, as ours do.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from eval.episodes import Step
from eval.export.source import RecordedTask, part
from eval.scores.summary import MetricRow, summarise

VERSION: Final = 2  # of Inspect's log files
SCORER: Final = "success"


def write(tasks: Sequence[RecordedTask], out: Path) -> Counter[str]:
    """Writes a log for each agent, sample by sample, so that its pictures are never in memory together; gives counts:
    samples, of them those with an episode."""
    counts: Counter[str] = Counter()
    agents: dict[str, list[RecordedTask]] = {}
    for task in tasks:
        agents.setdefault(task.record.agent, []).append(task)
    for agent, own in agents.items():
        head = _head(agent, own)
        began = head["eval"]["created"].replace(":", "-")
        with (out / f"{began}_{part(own[0].record.benchmark)}_{part(agent)}.json").open("w", encoding="utf-8") as file:
            file.write(json.dumps(head, indent=1).removesuffix("\n}") + ',\n "samples": [')
            for number, task in enumerate(own):
                file.write(",\n" if number else "\n")
                file.write(json.dumps(sample(task)))
                counts["samples"] += 1
                counts["of them with an episode"] += task.episode is not None
            file.write("\n ]\n}\n")
    return counts


def _head(agent: str, tasks: Sequence[RecordedTask]) -> dict[str, Any]:
    """The log without its samples."""
    records = [task.record for task in tasks]
    first = records[0]
    started = sorted(task.episode.started for task in tasks if task.episode is not None and task.episode.started)
    begin = started[0] if started else datetime.fromtimestamp(tasks[0].written, UTC).isoformat(timespec="seconds")
    rows = summarise(records, version=first.version, split="", seed=first.seed)
    scored = sum(record.outcome == "scored" for record in records)
    trials = max(record.trial for record in records) + 1
    dataset = {"name": first.benchmark, "samples": len({_id(task) for task in tasks})}
    score = {
        "name": SCORER,
        "scorer": SCORER,
        "scored_samples": len(records),
        "unscored_samples": 0,
        "params": {},
        "metrics": {row.metric: metric for row in rows if (metric := _metric(row))},
    }
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "created": begin,
            "task": first.benchmark,
            "task_version": first.version or "0",
            "dataset": {**dataset, "sample_ids": list(dict.fromkeys(_id(task) for task in tasks))},
            "model": f"slipway/{part(agent)}",
            "config": {"epochs": trials},
            "metadata": {"rules": first.rules},
        },
        "plan": {"name": "plan", "steps": [{"solver": agent, "params": {}}], "config": {}},
        "results": {"total_samples": len(records), "completed_samples": scored, "scores": [score]},
        "stats": {"started_at": begin, "completed_at": started[-1] if started else begin},
    }


def _metric(row: MetricRow) -> dict[str, Any] | None:
    """None for a figure without a value: a metric of Inspect has one."""
    if row.value is None:
        return None
    told = {"ci_low": row.ci_low, "ci_high": row.ci_high, "n": row.n, "infra_failures": row.infra_failures}
    return {"name": row.metric, "value": row.value, "params": {}, "metadata": told}


def _id(task: RecordedTask) -> str:
    return f"{task.record.task_id}/{task.record.seed}"


def sample(task: RecordedTask) -> dict[str, Any]:
    """One task as a sample."""
    record, episode = task.record, task.episode
    messages = list(_messages(task))
    out: dict[str, Any] = {
        "id": _id(task),
        "epoch": record.trial + 1,
        "input": messages[:1] or record.task_id,
        "target": "",
        "messages": messages,
        "metadata": {
            "programs": list(record.programs),
            "difficulty": record.difficulty,
            "failure": None if record.failure is None else record.failure.kind,
            "identity": record.identity,
        },
        "total_time": record.duration_ms / 1000,
    }
    if record.outcome == "scored":
        said = episode.steps[-1].response if episode is not None and episode.steps else None
        why = "" if record.failure is None else f"{record.failure.kind}: {record.failure.why}"
        value = {"value": float(bool(record.success)), "answer": said, "explanation": why or None}
        out["scores"] = {SCORER: {**value, "metadata": {"score": record.score}}}
    else:
        out["error"] = {"message": record.error or record.outcome, "traceback": "", "traceback_ansi": ""}
    return out


def _messages(task: RecordedTask) -> Iterator[dict[str, Any]]:
    """The conversation of a kept episode."""
    episode = task.episode
    if episode is None:
        return
    yield {"role": "user", "content": [_text(episode.instruction), *_picture(task, 0)]}
    for step in episode.steps:
        calls = list(_calls(step))
        thought = [{"type": "reasoning", "reasoning": step.thought}] if step.thought else []
        answer: dict[str, Any] = {
            "role": "assistant",
            "content": [*thought, _text(step.response or "")],
            "source": "generate",
            "model": f"slipway/{part(task.record.agent)}",
        }
        yield {**answer, "tool_calls": [call for call, _ in calls]} if calls else answer
        shown = _picture(task, step.index + 1)
        refused = step.parse_error or step.refused
        if not calls:
            yield {"role": "user", "content": [_text(refused or ""), *shown]}
        for number, (call, told) in enumerate(calls, 1):
            last = number == len(calls)
            content = [_text(told or (refused if last and refused else "done")), *(shown if last else [])]
            yield {"role": "tool", "tool_call_id": call["id"], "function": call["function"], "content": content}


def _calls(step: Step) -> Iterator[tuple[dict[str, Any], str]]:
    """The actions and calls of tools of an answer, each with what it gave back in words."""
    number = 0
    for action in step.actions:
        number += 1
        fields = action.to_json()
        yield _call(step, number, str(fields.pop("type")), fields), ""
    for call in step.calls:
        number += 1
        yield _call(step, number, call.name, call.arguments), (call.result if call.error is None else call.error) or ""


def _call(step: Step, number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": f"{step.index}-{number}", "function": name, "arguments": arguments, "type": "function"}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _picture(task: RecordedTask, index: int) -> list[dict[str, Any]]:
    path = task.picture(index)
    if path is None:
        return []
    data = base64.b64encode(path.read_bytes()).decode()
    return [{"type": "image", "image": f"data:image/png;base64,{data}"}]
