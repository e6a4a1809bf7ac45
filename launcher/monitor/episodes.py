"""The results of an evaluation as rows of the database: who was asked what, and each try with its turns.

A rollout is one episode folder, or a line of tasks.jsonl whose episode was not kept. Pictures stay in the store: an
observation names the object, its sha256 and its size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from launcher.decoding import decode
from launcher.errors import NotFound
from launcher.monitor.rows import Row, number, text, whole
from launcher.monitor.tables import identify
from launcher.report.agents import failure_kind
from launcher.report.replays import StepLine, action_text, folders_of, points
from launcher.results.read import (
    DamagedResults,
    DetailedResult,
    StoredOutput,
    decode_lines,
    read_metrics,
    read_tasks_of,
)
from launcher.store.manifest import key_of

TASKS: Final = "tasks.jsonl"
CHECKER: Final = "checker"  # the validator of an evaluation: the environment's own check
MOST_ACTIONS: Final = 1000  # of one answer


class Head(msgspec.Struct, frozen=True):
    """The fields of episode.json that become columns."""

    task_id: str = ""
    instruction: str = ""
    seed: int | str | None = None
    success: bool | None = None
    score: float | None = None
    outcome: str = "scored"
    error: str | None = None
    agent: str = ""
    environment: str = ""
    duration_ms: float | None = None
    screen: tuple[int, int] = (0, 0)


class Tokens(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0


class TurnLine(StepLine, frozen=True):
    """The fields of a line of steps.jsonl that become columns; a line that lacks its number still has them."""

    index: int = 0
    screenshot: str = ""
    usage: Tokens | None = None
    cost: float | None = None


@dataclass(frozen=True)
class Source:
    """One rollout before its files are read. `digest` is of everything that its rows are made of; `place` names it in
    its run."""

    id: int
    digest: str
    folder: str
    task: DetailedResult | None
    baseline: bool
    place: str


@dataclass
class Rows:
    """Rows by table, in the order in which they can be written."""

    shared: dict[str, dict[int, Row]] = field(default_factory=dict)  # many rollouts need them; by their ids
    own: dict[str, list[Row]] = field(default_factory=dict)

    def share(self, table: str, row: Row) -> int:
        key = int(row["id"])
        self.shared.setdefault(table, {})[key] = row
        return key


def sources(run_id: int, output: StoredOutput) -> list[Source]:
    """The rollouts of an output, without reading an episode. Raises DamagedResults, NotFound."""
    stamps = _stamps(output)
    folders = {folder: stamps[folder] for folder in folders_of(output)}
    found: dict[int, Source] = {}
    baselines = sorted(
        name
        for name in output.files
        if name.startswith("baselines/") and name.endswith(f"/{TASKS}") and name.count("/") == 2
    )
    for path in (TASKS, *baselines):
        if path not in output.files:
            continue
        for task in read_tasks_of(output, path, DetailedResult):
            folder = task.episode if task.episode in folders else ""
            stamp = folders.pop(folder, "") if folder else ""
            parts = ("folder", folder) if folder else ("task", path, *task.key, str(task.version), task.agent)
            place = folder or msgspec.json.encode(parts).decode()
            source = Source(
                identify("rollout", run_id, *parts),
                _digest(output.prefix, stamp, msgspec.json.encode(task).decode(), path),
                folder or "",
                task,
                path != TASKS,
                place,
            )
            found[source.id] = source
    for folder, stamp in folders.items():
        key = identify("rollout", run_id, "folder", folder)
        found[key] = Source(key, _digest(output.prefix, stamp), folder, None, False, folder)
    return list(found.values())


def _stamps(output: StoredOutput) -> dict[str, str]:
    """Episode's folder -> what its files hold and where they lie. While a run goes on, its pictures lie elsewhere than
    at its end, and some come after the lines that name them."""
    found: dict[str, list[str]] = {}
    for path in sorted(output.files):
        entry = output.manifest.files[path]
        found.setdefault(path.rpartition("/")[0], []).append(f"{path} {entry.sha256} {entry.at}")
    return {folder: "\n".join(lines) for folder, lines in found.items()}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


def rollout_rows(run_id: int, output: StoredOutput, source: Source, rows: Rows) -> None:
    """Adds the rows of one rollout. Damage becomes its error."""
    head, lines, damage = _read(output, source.folder)
    task = source.task
    benchmark = task.benchmark if task is not None else head.environment
    environment = rows.share(
        "environments",
        {
            "id": identify("environment", benchmark, task.version if task is not None else ""),
            "benchmark": text(benchmark),
            "version": text(task.version) if task is not None else "",
        },
    )
    task_name = text(task.task_id if task is not None else head.task_id)
    agent = text((task.agent if task is not None else "") or head.agent)
    task_key = rows.share(
        "tasks", {"id": identify("task", environment, task_name), "environment_id": environment, "task": task_name}
    )
    kind = "baselines" if source.baseline else "evals"
    owner = rows.share(
        kind,
        {
            "id": identify(kind, run_id, agent, environment),
            "run_id": run_id,
            "agent": agent,
            "environment_id": environment,
        },
    )
    group = rows.share(
        "groups",
        {
            "id": identify("group", owner, task_key),
            "task_id": task_key,
            "step_id": None,
            "eval_id": None if source.baseline else owner,
            "baseline_id": owner if source.baseline else None,
        },
    )
    told: DetailedResult | Head = task if task is not None else head
    outcome = (
        "not run"
        if told.outcome == "not run"
        else "infra"
        if told.outcome != "scored"
        else "not judged"
        if told.success is None
        else "solved"
        if told.success
        else "failed"
    )
    seconds = number(told.duration_ms)
    costs = [cost for cost in (number(line.cost) for line in lines) if cost is not None]
    errors = sum(line.parse_error is not None for line in lines)
    rows.own.setdefault("rollouts", []).append(
        {
            "id": source.id,
            "run_id": run_id,
            "group_id": group,
            "seed": text(told.seed),
            "instruction": text(head.instruction),
            "outcome": outcome,
            "success": None if told.success is None else int(told.success),
            "score": number(told.score),
            "error": text(damage or told.error or head.error),
            "failure": text(failure_kind(task)) if task is not None else "",
            "programs": text(" + ".join(task.programs)) if task is not None else "",
            "turns": len(lines) if source.folder else whole(task.steps) if task is not None else None,
            "parse_errors": errors if source.folder else None,
            "seconds": seconds / 1000 if seconds else None,
            "cost": sum(costs) if costs else number(task.metrics.get("cost")) if task is not None else None,
            "folder": text(source.folder),
            "width": whole(head.screen[0]),
            "height": whole(head.screen[1]),
            "digest": source.digest,
            "place": text(source.place),
        }
    )
    if outcome in ("solved", "failed"):
        validator = rows.share(
            "validators",
            {
                "id": identify("validator", environment, CHECKER),
                "environment_id": environment,
                "kind": CHECKER,
            },
        )
        note = task.failure if task is not None else None
        rows.own.setdefault("validations", []).append(
            {
                "rollout_id": source.id,
                "validator_id": validator,
                "success": None if told.success is None else int(told.success),
                "score": number(told.score),
                "rule": text(note.rule) if note is not None else "",
                "evidence": text(note.why) if note is not None else "",
            }
        )
    _turns(output, source, lines, rows.own)


def _turns(output: StoredOutput, source: Source, lines: Sequence[TurnLine], own: dict[str, list[Row]]) -> None:
    turns, actions = own.setdefault("turns", []), own.setdefault("actions", [])
    observations = own.setdefault("observations", [])
    for index, line in enumerate(lines):
        error = line.parse_error or (f"refused: {line.refused}" if line.refused else "")
        turns.append(
            {
                "rollout_id": source.id,
                "number": index,
                "answer": text(line.response),
                "thought": text(line.thought),
                "error": text(error),
                "input_tokens": whole(line.usage.input_tokens) if line.usage is not None else None,
                "output_tokens": whole(line.usage.output_tokens) if line.usage is not None else None,
            }
        )
        for place, action in enumerate(line.actions[:MOST_ACTIONS]):
            actions.append(
                {
                    "rollout_id": source.id,
                    "turn": index,
                    "number": place,
                    "kind": text(action.get("type"), 100),
                    "words": text(action_text(action)),
                    **points([action]),
                }
            )
        observations += _observation(output, source, index, line.screenshot)
    if lines:
        observations += _observation(output, source, len(lines), f"{len(lines):03d}.png")


def _observation(output: StoredOutput, source: Source, turn: int, name: str) -> Iterator[Row]:
    """The picture before a turn, if the manifest has it: a name in a line is no more than a claim."""
    entry = output.manifest.files.get(f"{source.folder}/{name}")
    if entry is not None:
        yield {
            "rollout_id": source.id,
            "turn": turn,
            "key": key_of(output.prefix, f"{source.folder}/{name}", entry.at),
            "sha256": entry.sha256,
            "bytes": entry.size,
        }


def _read(output: StoredOutput, folder: str) -> tuple[Head, list[TurnLine], str]:
    """(episode.json, the lines of steps.jsonl, what is damaged)."""
    if not folder:
        return Head(), [], ""
    head, lines = Head(), []
    try:
        head = decode(output.read(f"{folder}/episode.json"), Head)
        path = f"{folder}/steps.jsonl"
        if path in output.files:
            lines = decode_lines(output.read(path), TurnLine, path)
    except msgspec.MsgspecError as error:
        return head, lines, f"{folder}/episode.json: {error}"
    except (DamagedResults, NotFound, UnicodeDecodeError) as error:
        return head, lines, str(error)
    return head, lines, ""


def metric_rows(run_id: int, output: StoredOutput) -> list[Row]:
    """The lines of summary.json. Raises DamagedResults, NotFound."""
    return [
        {
            "run_id": run_id,
            "number": index,
            "benchmark": text(metric.benchmark),
            "agent": text(metric.agent),
            "metric": text(metric.metric),
            "value": number(metric.value),
            "low": number(metric.ci_low),
            "high": number(metric.ci_high),
            "n": whole(metric.n),
            "infra": whole(metric.infra_failures),
            "clusters": whole(metric.clusters),
        }
        for index, metric in enumerate(read_metrics(output))
    ]


SHARED: Final = ("environments", "validators", "tasks", "evals", "baselines", "groups")
OWN: Final = ("rollouts", "turns", "actions", "observations", "validations")


def merged(parts: Sequence[Rows]) -> tuple[Mapping[str, Mapping[int, Row]], Mapping[str, list[Row]]]:
    """(the shared rows, the own rows) of several rollouts."""
    shared: dict[str, dict[int, Row]] = {}
    own: dict[str, list[Row]] = {}
    for part in parts:
        for table, rows in part.shared.items():
            shared.setdefault(table, {}).update(rows)
        for table, listed in part.own.items():
            own.setdefault(table, []).extend(listed)
    return shared, own
