"""One row per metric of every run. A run without metrics, or with damaged files, has a row with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from launcher.errors import BadInput, NotFound
from launcher.parallel import Threads
from launcher.protocol.deleted import why_missing
from launcher.results.compare import Comparison, compare
from launcher.results.facts import Facts
from launcher.results.read import DamagedResults, Metric, TaskResult, open_output, read_metrics, read_tasks
from launcher.store.base import Store

# the columns of CSV, JSON and Parquet in order, with their types; their names do not change
COLUMNS: Final[dict[str, type]] = {
    "benchmark": str, "version": str, "split": str, "agent": str, "metric": str,
    "value": float, "ci_low": float, "ci_high": float, "n": int, "infra_failures": int, "seeds": list,
    "run": str, "name": str, "state": str, "reason": str, "problem": str, "attempt": int,
    "work": str, "environment": str, "git_commit": str, "git_dirty": bool, "data": dict, "backend": str,
    "gpu_hours": float, "minutes": float, "cost": float, "currency": str, "variant": dict,
    "adopted": str, "resumed": str, "clusters": int, "cost_per_solved": float,
}  # fmt: skip
SUCCESS: Final = "success"  # the metric that is the share of `n` tasks that were solved
MAX_COMPARISONS = 4  # comparisons shown without a request; `launcher compare` has no limit


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A metric of a run, or the reason why the run has none."""

    facts: Facts
    metric: Metric | None
    problem: str = ""

    @property
    def cost_per_solved(self) -> float | None:
        """The run's cost divided by the tasks that it solved; None for another metric than the rate of success, without
        a price, or when nothing was solved."""
        metric, cost = self.metric, self.facts.cost
        if metric is None or metric.metric != SUCCESS or not metric.value or not metric.n or cost is None:
            return None
        return cost / round(metric.value * metric.n)

    def flat(self) -> dict[str, Any]:
        """A value for each of COLUMNS; None if unknown."""
        facts, metric = self.facts, self.metric
        return {
            "benchmark": metric.benchmark if metric else None,
            "version": str(metric.version) if metric else None,
            "split": metric.split if metric else None,
            "agent": metric.agent if metric else None,
            "metric": metric.metric if metric else None,
            "value": metric.value if metric else None,
            "ci_low": metric.ci_low if metric else None,
            "ci_high": metric.ci_high if metric else None,
            "n": metric.n if metric else None,
            "infra_failures": metric.infra_failures if metric else None,
            "seeds": _seeds(metric) if metric else None,
            "run": facts.run,
            "name": facts.name,
            "state": facts.state,
            "reason": facts.reason or None,
            "problem": self.problem or None,
            "attempt": facts.attempt,
            "work": facts.work,
            "environment": facts.environment,
            "git_commit": facts.git_commit or None,
            "git_dirty": facts.git_dirty,
            "data": dict(facts.data),
            "backend": facts.job.backend,
            "gpu_hours": facts.gpu_hours,
            "minutes": facts.seconds / 60,
            "cost": facts.cost,
            "currency": facts.currency or None,
            "variant": dict(facts.job.variant),
            "adopted": facts.source[0] if facts.source[0] != facts.run else None,
            "resumed": facts.job.resume if facts.job.resume_made_with else None,
            "clusters": metric.clusters if metric else None,
            "cost_per_solved": self.cost_per_solved,
        }


def _seeds(metric: Metric) -> list[int] | None:
    return [metric.seeds] if isinstance(metric.seeds, int) else metric.seeds


def load_rows(store: Store, facts: Sequence[Facts]) -> list[ResultRow]:
    """The rows of many runs, in the order of the runs, read from the attempt that each result names."""
    with Threads(8) as pool:
        return [row for rows in pool.map(lambda run_facts: _load(store, run_facts), facts) for row in rows]


def _load(store: Store, facts: Facts) -> list[ResultRow]:
    if not facts.evaluates:
        return []
    if facts.state != "succeeded":
        return [ResultRow(facts, None, facts.reason or facts.state)]
    try:
        output = open_output(store, *facts.source)
        if output is None:
            reason = why_missing(store, facts.source[0])
            return [ResultRow(facts, None, reason or "the output `results` has no manifest")]
        return [ResultRow(facts, metric) for metric in read_metrics(output)]
    except (DamagedResults, NotFound) as error:
        return [ResultRow(facts, None, str(error))]


def load_files(store: Store, facts: Sequence[Facts], rows: Sequence[ResultRow]) -> dict[str, list[tuple[str, int]]]:
    """(path, bytes) of the output files of each run that succeeded and has no row: it measured nothing."""
    measured = {row.facts.run for row in rows}
    found: dict[str, list[tuple[str, int]]] = {}
    for one in facts:
        if one.run in measured or one.state != "succeeded":
            continue
        outputs = ((name, open_output(store, *one.source, name)) for name in sorted(one.job.outputs))
        files = [
            (f"{name}/{path}", entry.size)
            for name, output in outputs
            if output is not None
            for path, entry in sorted(output.manifest.files.items())
        ]
        if files:
            found[one.run] = files
    return found


def arrange(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows sorted by benchmark, then by metric, then in the order of the runs. The rate over the tasks that ran
    stands beside the rate over all."""
    order: dict[tuple[str, ...], int] = {}

    def place(*key: str) -> int:
        return order.setdefault(key, len(order))

    keyed: list[tuple[tuple[int, ...], ResultRow]] = []
    for row in rows:
        metric = row.metric
        if metric is None:
            keyed.append(((1,), row))
        else:
            benchmark = (metric.benchmark, str(metric.version), metric.split)
            name, _, part = metric.metric.partition("/")  # metric a/b comes after a
            family = place(*benchmark, "family", "success" if name == "success_of_run" else name)
            keyed.append(((0, place(*benchmark), family, bool(part), place(*benchmark, metric.metric)), row))
    return [row for _, row in sorted(keyed, key=lambda pair: pair[0])]


def by_depth(runs: Sequence[str], edges: Mapping[str, Sequence[str]]) -> list[str]:
    """The runs sorted by the number of stages before them, otherwise in the given order. So the evaluation of the
    untrained agent comes before that of the trained agent, in any order of the file."""
    depths: dict[str, int] = {}
    for run in runs:  # in topological order
        depths[run] = 1 + max((depths.get(above, 0) for above in edges.get(run, ())), default=0)
    return sorted(runs, key=lambda run: depths[run])


def load_tasks(store: Store, facts: Facts) -> list[TaskResult]:
    """The tasks of one evaluation. Raises NotFound if the run has none (yet)."""
    if facts.state != "succeeded":
        raise NotFound(f"{facts.run} has no results: it is {facts.state}{f' ({facts.reason})' if facts.reason else ''}")
    output = open_output(store, *facts.source) if facts.evaluates else None
    if output is None and (reason := why_missing(store, facts.source[0])):
        raise NotFound(f"{facts.run}: {reason}")
    if output is None or "tasks.jsonl" not in output.files:
        raise NotFound(f"{facts.run} has no tasks.jsonl in an output `results`; it is not an evaluation")
    return read_tasks(output)


class Comparisons(NamedTuple):
    """Comparisons that nobody asked for by name. `refused`: why two evaluations of the same tasks are not compared."""

    shown: list[Comparison]
    refused: list[str]


def auto_compare(store: Store, facts: Sequence[Facts]) -> Comparisons:
    """Compares every later evaluation of a benchmark with the benchmark's first one, if they share tasks."""
    refused: list[str] = []
    firsts: dict[str, tuple[Facts, list[TaskResult]]] = {}
    comparisons: list[Comparison] = []
    for run_facts in facts:
        if len(comparisons) >= MAX_COMPARISONS:
            break  # nobody would see the others
        try:
            tasks = load_tasks(store, run_facts)
        except (NotFound, DamagedResults):
            continue  # load_rows makes a row with the reason
        for benchmark in dict.fromkeys(task.benchmark for task in tasks):
            in_benchmark = [task for task in tasks if task.benchmark == benchmark]
            if benchmark not in firsts:
                firsts[benchmark] = run_facts, in_benchmark
                continue
            first, others = firsts[benchmark]
            if {task.key for task in others} & {task.key for task in in_benchmark}:
                try:
                    comparisons += compare(first.name, others, run_facts.name, in_benchmark, _metric(in_benchmark))
                except BadInput as error:
                    refused.append(f"not compared: {error}")
    return Comparisons(comparisons[:MAX_COMPARISONS], refused[:MAX_COMPARISONS])


def _metric(tasks: Sequence[TaskResult]) -> str:
    return "success" if any(task.success is not None for task in tasks) else "score"
