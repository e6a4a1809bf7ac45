"""Agents side by side: the tasks of each, grouped, and what they took. Everything here is computed from tasks.jsonl."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from launcher.decoding import Alike
from launcher.errors import NotFound
from launcher.results.compare import mean_with_interval
from launcher.results.facts import Facts
from launcher.results.read import DamagedResults, DetailedResult, StoredOutput, read_tasks_of
from launcher.results.stats import Interval

TASKS: Final = "tasks.jsonl"
VERIFIED: Final = "verified.json"
EASY_FIRST: Final = ("easy", "medium", "hard")
INFRASTRUCTURE: Final = "infrastructure"
UNKNOWN: Final = "not classified"  # of records without a class, as other programs write them


@dataclass(frozen=True, slots=True)
class AgentResults:
    """The tasks of one agent on one benchmark, version and revision of its task set. `label` is unique among those of
    the report. `verified`: what a replay of its episodes found, in words; "" where there was none."""

    label: str
    run: str
    benchmark: str
    version: str
    tasks: tuple[DetailedResult, ...]
    verified: str = ""


class _Verification(msgspec.Struct):
    """Of verified.json (eval.verify): `records` is the sha256 of the tasks.jsonl that was verified."""

    records: str
    scored: int
    stand: int
    missing: int
    summary: list[str]


def _verified(outputs: Sequence[tuple[Facts, StoredOutput]], problems: list[str]) -> dict[str, str]:
    """sha256 of a tasks.jsonl -> what the replay of its episodes found."""
    found = {}
    for facts, output in outputs:
        if VERIFIED not in output.files:
            continue
        try:
            told = msgspec.json.decode(output.read(VERIFIED), type=_Verification)
        except (DamagedResults, NotFound) as error:
            problems.append(str(error))
            continue
        except msgspec.MsgspecError as error:
            problems.append(f"{output.prefix}{VERIFIED}: {error}")
            continue
        whole = 0 < told.stand == told.scored and not told.missing and not told.summary
        words = f"{told.stand} of {told.scored} scores stand ({facts.name})"
        words += f"; {told.missing} tasks are missing" if told.missing else ""
        words = f"verified by replay: {words}" if whole else f"not verified by replay: {words}"
        found[told.records] = f"{words}; the summary is not that of the records" if told.summary else words
    return found


def read_agents(outputs: Sequence[tuple[Facts, StoredOutput]], problems: list[str]) -> list[AgentResults]:
    """The agents of every evaluation, baselines included. Damage is a line of `problems`."""
    # agent, run, tasks of one benchmark, what a replay of them found
    found: list[tuple[str, str, list[DetailedResult], str]] = []
    alike = Alike()
    verified = _verified(outputs, problems)
    for facts, output in outputs:
        baselines = [name for name in output.files if name.startswith("baselines/") and name.count("/") == 2]
        for path in (TASKS, *sorted(name for name in baselines if name.endswith(f"/{TASKS}"))):
            if path not in output.files:
                continue
            try:
                tasks = read_tasks_of(output, path, DetailedResult)
            except (DamagedResults, NotFound) as error:
                problems.append(str(error))
                continue
            parts: dict[tuple[str, str, str], list[DetailedResult]] = {}
            for task in map(alike.share, tasks):
                parts.setdefault((task.agent, task.benchmark, task.edition), []).append(task)
            replayed = verified.get(output.manifest.files[path].sha256, "")
            found += [(agent, facts.name, part, replayed) for (agent, _, _), part in parts.items()]
    uses = Counter((agent or run, part[0].benchmark, part[0].edition) for agent, run, part, _ in found)
    taken: Counter[tuple[str, str, str]] = Counter()
    agents = []
    for agent, run, part, replayed in found:
        benchmark, version = part[0].benchmark, part[0].edition
        label = agent or run
        if uses[label, benchmark, version] > 1:
            label = f"{agent} ({run})" if agent else run
        taken[label, benchmark, version] += 1
        if (number := taken[label, benchmark, version]) > 1:
            label = f"{label} #{number}"
        agents.append(AgentResults(label, run, benchmark, version, tuple(part), replayed))
    return agents


def by_benchmark(agents: Sequence[AgentResults]) -> list[tuple[str, list[AgentResults]]]:
    """(benchmark and version, its agents), in the order of the agents."""
    groups: dict[str, list[AgentResults]] = {}
    for agent in agents:
        groups.setdefault(f"{agent.benchmark} {agent.version}".strip(), []).append(agent)
    return list(groups.items())


@dataclass(frozen=True)
class SolvedShare:
    """How many of `n` tasks were solved. Tasks that the infrastructure broke (`infra`) and those that cannot run there
    (`not_run`) stay in `n`."""

    solved: int
    n: int
    infra: int
    not_run: int
    interval: Interval | None


def solved(tasks: Sequence[DetailedResult]) -> SolvedShare:
    """The share with its interval: Wilson's, or by cluster where tasks are not independent."""
    values = [float(bool(task.success)) for task in tasks]
    interval = mean_with_interval([task.unit for task in tasks], values, True) if tasks else None
    infra, not_run = (sum(task.outcome == outcome for task in tasks) for outcome in ("infra", "not run"))
    return SolvedShare(round(sum(values)), len(tasks), infra, not_run, interval)


def program_of(task: DetailedResult) -> str:
    return " + ".join(task.programs)


DIMENSIONS: Final[dict[str, Callable[[DetailedResult], str]]] = {
    "program": program_of,
    "difficulty": lambda task: task.difficulty,
    "task": lambda task: task.task_id,
}


def grouped(agents: Sequence[AgentResults], dimension: str) -> list[tuple[str, list[list[DetailedResult]]]]:
    """(group, its tasks for each agent). Empty where the tasks do not tell, or all are of one group."""
    key = DIMENSIONS[dimension]
    groups: dict[str, list[list[DetailedResult]]] = {}
    for index, agent in enumerate(agents):
        for task in agent.tasks:
            if (name := key(task)) not in groups:
                groups[name] = [[] for _ in agents]
            groups[name][index].append(task)
    if len(groups) < 2:
        return []
    order = {name: place for place, name in enumerate(EASY_FIRST)}
    return sorted(groups.items(), key=lambda pair: (order.get(pair[0], len(order)), pair[0]))


def solved_within(tasks: Sequence[DetailedResult]) -> list[tuple[float, float]]:
    """(answers, share of all tasks solved by an episode of at most so many): a lower bound of the success of an agent
    that knows of such a limit, as `success_within` of the evaluation."""
    if not tasks:
        return []
    counts = Counter(task.steps for task in tasks if task.success)
    points, sum_ = [(0.0, 0.0)], 0
    for answers in range(1, max((task.steps for task in tasks), default=0) + 1):
        sum_ += counts[answers]
        points.append((float(answers), sum_ / len(tasks)))
    return points


def failure_kind(task: DetailedResult) -> str:
    """The class of a task that failed; "" for one that was solved or not judged."""
    if task.outcome == "infra":
        return INFRASTRUCTURE
    if task.outcome == "not run":
        return task.outcome
    if task.success is not False:
        return ""
    return task.failure.kind if task.failure is not None and task.failure.kind else UNKNOWN


@dataclass(frozen=True)
class FailureCount:
    """A class of failures: its rules in words (several where evaluations had different ones), a number per agent."""

    kind: str
    rules: tuple[str, ...]
    counts: tuple[int, ...]


def failure_counts(agents: Sequence[AgentResults]) -> list[FailureCount]:
    """The classes that occur, the most frequent first."""
    counts = [Counter(filter(None, map(failure_kind, agent.tasks))) for agent in agents]
    rules: dict[str, dict[str, None]] = {}
    for agent in agents:
        for task in agent.tasks:
            if task.failure is not None and task.failure.rule:
                rules.setdefault(failure_kind(task), {})[task.failure.rule] = None
    kinds = sorted({kind for each in counts for kind in each}, key=lambda kind: (-sum(c[kind] for c in counts), kind))
    return [FailureCount(kind, tuple(rules.get(kind, ())), tuple(each[kind] for each in counts)) for kind in kinds]


@dataclass(frozen=True)
class EffortOfAgent:
    """What an agent's episodes took. Seconds and USD of all episodes, failed ones included, per solved task: None where
    none was solved, or no cost is known.

    unpriced    answers without a cost where others have one: the costs are lower bounds; whole episodes count as all
                their answers
    """

    seconds: float
    seconds_per_solved: float | None
    steps: float | None
    steps_of_solved: float | None
    cost: float | None
    cost_per_solved: float | None
    unpriced: int
    tokens: float | None


def effort(tasks: Sequence[DetailedResult]) -> EffortOfAgent:
    won = [task for task in tasks if task.success]
    seconds = sum(task.duration_ms for task in tasks) / 1000
    costs = [task.metrics["cost"] for task in tasks if "cost" in task.metrics]
    cost = sum(costs) if costs else None
    unpriced = sum(
        task.metrics.get("answers_without_cost", 0.0) if "cost" in task.metrics else task.steps for task in tasks
    )
    tokens = [
        task.metrics[name] for task in tasks for name in ("input_tokens", "output_tokens") if name in task.metrics
    ]
    return EffortOfAgent(
        seconds=seconds,
        seconds_per_solved=seconds / len(won) if won and seconds else None,
        steps=sum(task.steps for task in tasks) / len(tasks) if tasks else None,
        steps_of_solved=sum(task.steps for task in won) / len(won) if won else None,
        cost=cost,
        cost_per_solved=cost / len(won) if won and cost is not None else None,
        unpriced=int(unpriced) if costs else 0,
        tokens=sum(tokens) if tokens else None,
    )
