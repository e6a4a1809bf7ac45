"""What of an earlier run stands: which judged tasks are not run again, and where going on is refused.

A judged task stands where it would be the same episode now, judged the same: its content, its identity and the rules
are the same, and the limit of steps did not end it, or was not raised since. Agents are not told the limit, so an
episode that ended by itself within a limit is the same with a higher one. A lower limit would cut what is judged: it is
refused, and so are records that do not say by which judge.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.actions import ActionType
from eval.agents.computer import Computer
from eval.config import ConfigError, ResumeError
from eval.desktop import Task
from eval.episodes import jsonl
from eval.records.task_record import EPISODES, RECORDS, TaskRecord

REPLACED: Final = "replaced.jsonl"  # records of tasks that are run again although they were judged
SET: Final = ("revision", "stale", "unread")  # of an environment's options: what it says of its task set as a whole
FIRST_RULE: Final = {"rule": "1"}  # of what an answer counts as, in results of before it was written
STEPS: Final = ("max_steps", "step_budget")
Key = tuple[str, int, int]


def key_of(one: Task | TaskRecord) -> Key:
    return one.task_id, one.seed, one.trial


def content_of(task: Task) -> str:
    """The beginning of the sha256 over all that defines a task: instruction, options, own limit of steps."""
    told = [task.task_id, task.instruction, task.seed, task.max_steps, dict(task.options), task.feasible]
    text = msgspec.json.encode(told, enc_hook=lambda value: type(value).__qualname__, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]


@dataclass
class Standing:
    """`known`: the records that stand, by task. `replaced`: those of tasks that are run again; `why` counts them."""

    known: dict[Key, TaskRecord] = field(default_factory=dict)
    replaced: list[TaskRecord] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)


def go_on(
    out: Path,
    records: Sequence[TaskRecord],
    tasks: Sequence[Task],
    who: tuple[str, str, str],
    rules: Mapping[str, Any],
    steps_of: Callable[[Task], int],
) -> dict[Key, TaskRecord]:
    """The records of `out` that stand, by task; its tasks.jsonl then holds these alone, and replaced.jsonl the others
    that had a score.

    who  benchmark, agent, version of the run that goes on

    Raises ConfigError, as `standing`, and for results of another agent or benchmark.
    """
    path, (benchmark, agent, version) = out / RECORDS, who
    if strangers := {(r.benchmark, r.agent) for r in records} - {(benchmark, agent)}:
        raise ResumeError(
            f"{path} holds results of {' and '.join(map('/'.join, sorted(strangers)))}; name another folder"
        )
    try:
        found = standing(records, tasks, version, rules, steps_of)
    except ConfigError as error:
        raise ResumeError(f"{path} holds {error}; name another folder") from None
    for why, count in found.why.items():
        print(f"{count} judged tasks {why} are run again", flush=True)
    if found.replaced:
        jsonl.append(out / REPLACED, found.replaced)
    jsonl.write(path, found.known.values())
    return found.known


def standing(
    records: Sequence[TaskRecord],
    tasks: Iterable[Task],
    version: str,
    rules: Mapping[str, Any],
    steps_of: Callable[[Task], int],
) -> Standing:
    """Which records stand. Those of tasks that the infrastructure failed do not; they are no scores.

    steps_of  the present limit of a task

    Raises ConfigError for records by other rules than a raised limit or another revision of the task set, and for those
    that do not say by which judge, where the task says it now.
    """
    found, by_key = Standing(), {key_of(task): task for task in tasks}
    for record in records:
        task = by_key.get(key_of(record))
        if record.rules:
            _same_rules(record, version, rules, task, steps_of)
        if record.outcome != "scored":
            continue
        if task is None:
            found.known[key_of(record)] = record
        elif (why := _outdated(record, task, rules, steps_of(task))) is not None:
            found.replaced.append(record)
            found.why[why] += 1
        else:
            found.known[key_of(record)] = _by_rules(record, rules)
    return found


def limit_of(record: TaskRecord, task: Task) -> int:
    """The limit of steps by which a record was made."""
    asked: int | None = record.rules.get("step_budget")
    return asked or task.max_steps or int(record.rules["max_steps"])


def _same_rules(
    record: TaskRecord,
    version: str,
    rules: Mapping[str, Any],
    task: Task | None,
    steps_of: Callable[[Task], int],
) -> None:
    mine, now = _comparable(record.rules), _comparable(rules)
    if (record.version, mine) != (version, now):
        raise ConfigError(other_rules(record, version, rules))
    if task is not None and steps_of(task) < limit_of(record, task):
        raise ConfigError(f"{other_rules(record, version, rules)} (a limit can be raised, not lowered)")


def _comparable(rules: Mapping[str, Any]) -> dict[str, Any]:
    """The rules without limits of steps, which may rise, and without what is said of the task set as a whole: each
    record's own content counts in its place."""
    rest = {"answers": FIRST_RULE, **{name: value for name, value in rules.items() if name not in STEPS}}
    options = rest.get("options", {})
    return {**rest, "options": {name: value for name, value in options.items() if name not in SET}}


def _outdated(record: TaskRecord, task: Task, rules: Mapping[str, Any], limit: int) -> str | None:
    """Why a judged task is run again; None where its record stands. Raises ConfigError where nobody can know."""
    if not record.rules:
        return None
    if task.identity and not record.identity:
        raise ConfigError(
            f"results whose judge is unknown, such as {record.task_id}: they do not say what of the task's judge, "
            "programs and desktop was other then"
        )
    was, now = record.identity, task.identity
    if changed := [name for name in {**was, **now} if was.get(name) != now.get(name)]:
        return f"whose identity changed ({', '.join(changed)})"
    if record.content != content_of(task):
        options, new = record.rules.get("options", {}), rules.get("options", {})
        if record.content or any(options.get(name) != new.get(name) for name in SET):
            return "whose content changed"
    before = limit_of(record, task)
    cut = record.steps >= before if record.cut is None else record.cut
    return f"that the limit of {before} steps had ended" if cut and limit > before else None


def _by_rules(record: TaskRecord, rules: Mapping[str, Any]) -> TaskRecord:
    """The record as one by the present rules; `earlier` keeps what was other when its episode ran."""
    if not record.rules or record.rules == rules:
        return record
    was, now = _flat(record.rules), _flat(rules)
    differs = {name: value for name, value in was.items() if now.get(name) != value}
    return msgspec.structs.replace(record, rules=dict(rules), earlier={**differs, **record.earlier})


def _flat(rules: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in rules.items() if name != "options"}, **rules.get("options", {})}


def other_rules(record: TaskRecord, version: str, rules: Mapping[str, Any]) -> str:
    stored = {"version": record.version, "answers": FIRST_RULE, **record.rules}
    differ = [
        f"{name} {stored.get(name)!r} where it is {value!r} now"
        for name, value in {"version": version, **rules}.items()
        if stored.get(name) != value
    ]
    return f"results by other rules: {', '.join(differ)}" if differ else "results by other rules"


def repeated(tasks: Sequence[Task], trials: int) -> list[Task]:
    """Each task so many times. Trials of one task are not independent: they are of one cluster."""
    if trials == 1:
        return list(tasks)
    return [
        replace(task, trial=trial, cluster=task.cluster or f"{task.task_id} {task.seed}")
        for trial in range(trials)
        for task in tasks
    ]


def take_over(earlier: Path, out: Path) -> None:
    """Copies the records and episodes of another run's results, those of baselines too, into `out` if it has none yet.

    Records come last, so a copy that was cut off begins again. Raises ConfigError for a folder without results.
    """
    sources = [earlier, *sorted(each for each in (earlier / "baselines").glob("*") if (each / RECORDS).is_file())]
    if not (earlier / RECORDS).is_file():
        raise ConfigError(f"earlier: {earlier / RECORDS} is not there; name a folder of results of an evaluation")
    for source in sources:
        target = out / source.relative_to(earlier)
        if (target / RECORDS).is_file():
            continue
        target.mkdir(parents=True, exist_ok=True)
        if (source / EPISODES).is_dir():
            shutil.copytree(source / EPISODES, target / EPISODES, dirs_exist_ok=True)
        try:
            records = jsonl.read(source / RECORDS, TaskRecord)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"earlier: {source / RECORDS}: {error}") from None
        jsonl.write(target / RECORDS, records)


def was_cut(computer: Computer) -> bool:
    """Whether the limit of steps ended the episode: neither the agent said that it ends, nor the desktop."""
    steps = computer.steps
    last = steps[-1].actions[-1].type if steps and steps[-1].actions else None
    over = computer.observation.done or computer.failed or last in (ActionType.DONE, ActionType.FAIL)
    return len(steps) >= computer.max_steps and not over


def longest_first(tasks: Sequence[Task], records: Sequence[TaskRecord], steps_of: Callable[[Task], int]) -> list[int]:
    """The numbers of the tasks, those first that are expected to take longest: so the last ones to end are short.

    What a task took before counts, also with other seeds; else its limit of steps, at the rate of all others.
    """
    took: dict[str, list[int]] = {}
    for record in records:
        took.setdefault(record.task_id, []).append(record.duration_ms)
    steps = sum(record.steps for record in records)
    a_step = sum(record.duration_ms for record in records) / steps if steps else 1.0

    def expected(task: Task) -> float:
        before = took.get(task.task_id)
        return sum(before) / len(before) if before else a_step * steps_of(task)

    return sorted(range(len(tasks)), key=lambda number: -expected(tasks[number]))
