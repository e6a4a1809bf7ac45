"""Prints results as tables: metrics with their intervals, comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from launcher import safe_text
from launcher.cli.printing.output import table
from launcher.cli.printing.units import size
from launcher.results.compare import Comparison
from launcher.results.facts import Facts
from launcher.results.rows import Comparisons, ResultRow, arrange
from launcher.results.stats import Interval
from launcher.results.text import FEW_CLUSTERS, difference, few_clusters, interval, money, number, probability

FILES: Final = 20  # files of a run that are listed without --all


def results_text(
    rows: Sequence[ResultRow],
    facts: Sequence[Facts],
    comparisons: Comparisons,
    files: Mapping[str, Sequence[tuple[str, int]]] = MappingProxyType({}),
    *,
    everything: bool = False,
) -> str:
    """The default view of `launcher results`; metrics of parts (`accuracy/click`) only with `everything`. `files`: of
    runs without metrics, as `load_files` gives them."""
    blocks = []
    measured = [row for row in arrange(rows) if row.metric is not None]
    parts = [row for row in measured if row.metric is not None and "/" in row.metric.metric]
    if parts and not everything:
        measured = [row for row in measured if row not in parts]
    for benchmark in dict.fromkeys(map(_benchmark, measured)):
        mine = [row for row in measured if _benchmark(row) == benchmark]
        blocks.append(f"{benchmark}\n{_metrics(mine)}")
    if parts and not everything:
        blocks.append(f"{len(parts)} more rows for parts of these metrics: give --all")
    problems = [row for row in rows if row.metric is None]
    if problems:
        lines = [safe_text.line(f"  {row.facts.run}: {row.problem}") for row in problems]
        blocks.append("no results:\n" + "\n".join(lines))
    blocks += [_files(run, listed, len(listed) if everything else FILES) for run, listed in files.items()]
    if lines := [*map(comparison_line, comparisons.shown), *map(safe_text.line, comparisons.refused)]:
        blocks.append("\n".join(lines))
    blocks.append(_runs(facts))
    return "\n\n".join(blocks)


def _files(run: str, files: Sequence[tuple[str, int]], limit: int) -> str:
    lines = [f"files of {run}, which has no metrics:"]
    lines += [safe_text.line(f"  {path}  {size(count)}") for path, count in files[:limit]]
    if len(files) > limit:
        lines.append(f"  and {len(files) - limit} more: give --all")
    lines.append(f"`launcher gather {run} --to DIR --what outputs` copies them")
    return "\n".join(lines)


def _benchmark(row: ResultRow) -> str:
    metric = row.metric
    assert metric is not None
    name = f"{metric.benchmark} {metric.version}".strip()
    return safe_text.line(f"{name} · {metric.split}" if metric.split else name)


def _metrics(rows: Sequence[ResultRow]) -> str:
    shown: list[dict[str, Any]] = []
    last = ""
    for row in rows:
        metric = row.metric
        assert metric is not None
        shown.append(
            {
                "metric": metric.metric if metric.metric != last else " ",
                "run": row.facts.run,
                "name": row.facts.name if row.facts.name != row.facts.job.name else "",
                "agent": metric.agent,
                "value": number(metric.value, metric.metric),
                "95 % interval": interval(metric.ci_low, metric.ci_high, metric.metric)
                + (" *" if few_clusters(metric) else ""),
                "n": metric.n,
                "infra": metric.infra_failures,
                "minutes": f"{row.facts.seconds / 60:.1f}",
                "cost per solved": money(row.cost_per_solved, row.facts.currency),
            }
        )
        last = metric.metric
    optional = ("agent", "name", "cost per solved")
    columns = [name for name in shown[0] if name not in optional or any(line[name] for line in shown)]
    text = table(shown, columns, right=("value", "95 % interval", "n", "infra", "minutes", "cost per solved"))
    few = any(row.metric is not None and few_clusters(row.metric) for row in rows)
    return f"{text}\n* {FEW_CLUSTERS}" if few else text


def comparison_line(one: Comparison) -> str:
    """B compared with A in two lines, with what was left out."""
    metric = safe_text.line(one.metric)
    if one.difference is None:
        return f"{one.b} against {one.a}: no pair of tasks was scored on both sides, {one.left_out} left out"
    test = f", {one.test} {probability(one.p)}" if one.p is not None else ""
    equal = one.pairs - one.gained - one.lost
    left_out = f"; {one.left_out} left out" if one.left_out else ""
    lines = [
        f"{one.b} against {one.a}: {metric} {difference(one.difference, one.metric)}{test}",
        f"  {counted(one)}: {one.gained} gained, {one.lost} lost, {equal} equal{left_out}",
    ]
    return "\n".join([*lines, *(f"  {safe_text.line(note)}" for note in one.notes)])


def counted(one: Comparison) -> str:
    """How many pairs there are, and in how many clusters."""
    clusters = f" in {one.clusters} clusters" if one.by_cluster else ""
    return f"{one.pairs} pairs of tasks{clusters}"


def _runs(facts: Sequence[Facts]) -> str:
    shown = [
        {
            "run": one.run,
            "state": one.state,
            "minutes": f"{one.seconds / 60:.1f}",
            "gpu hours": f"{one.gpu_hours:.2f}" if one.gpu_hours else None,
            "cost": money(one.cost, one.currency),
            "attempt": one.attempt or None,
            "commit": one.git_commit[:10] + ("+" if one.git_dirty else ""),
            "work": one.work[:12],
        }
        for one in facts
    ]
    total = sum(one.seconds for one in facts) / 60
    columns = [
        name
        for name in shown[0]
        if name in ("run", "state", "minutes", "attempt", "work") or any(line[name] for line in shown)
    ]
    text = table(shown, columns, right=("minutes", "gpu hours", "cost", "attempt"))
    return text if len(facts) == 1 else f"{text}\n{len(facts)} runs, {total:.1f} minutes"


def comparison_text(one: Comparison) -> str:
    """A full comparison, for `launcher compare`."""
    rows = [
        {"": one.a, "value": _value(one.value_a, one.metric), "95 % interval": _bounds(one.value_a, one.metric)},
        {"": one.b, "value": _value(one.value_b, one.metric), "95 % interval": _bounds(one.value_b, one.metric)},
    ]
    rows = [{"run": row.pop(""), **row, "n": str(one.tasks)} for row in rows]
    benchmark = safe_text.line(f"{one.benchmark} {one.version}".strip())
    group = safe_text.line(one.group)
    lines = [
        f"{safe_text.line(one.metric)} on {one.tasks} tasks of {benchmark}" + (f": {group}" if group else ""),
        table(rows, right=("value", "95 % interval", "n")),
    ]
    if one.difference is not None:
        lines.append(f"\ndifference {difference(one.difference, one.metric)}   (95 %, {counted(one)})")
        lines.append(
            f"{one.gained} better in {one.b}, {one.lost} better in {one.a}, {one.pairs - one.gained - one.lost} equal"
        )
        if one.p is not None:
            lines.append(f"{one.test} {probability(one.p)}")
    lines += _per_solved(one)
    lines += [safe_text.line(note) for note in one.notes]
    for title, keys in (
        (f"only in {one.a}, not counted", one.only_a),
        (f"only in {one.b}, not counted", one.only_b),
        (f"infrastructure failed in {one.a}, in no pair and not solved there", one.infra_a),
        (f"infrastructure failed in {one.b}, in no pair and not solved there", one.infra_b),
        (f"could not run in {one.a}, in no pair and not solved there", one.not_run_a),
        (f"could not run in {one.b}, in no pair and not solved there", one.not_run_b),
        (f"without {safe_text.line(one.metric)}, not counted", one.unscored),
        ("with another judge, other programs or another desktop, not counted", one.other_task),
    ):
        if keys:
            lines.append(f"\n{title}: {len(keys)}")
            lines += [f"  {task_name(key)}" for key in keys[:20]]
            if len(keys) > 20:
                lines.append(f"  and {len(keys) - 20} more (-o json lists all)")
    return "\n".join(lines)


def _per_solved(one: Comparison) -> list[str]:
    """The line of what a solved task took; none where no record tells."""
    a, b = one.per_solved_a, one.per_solved_b
    told = [
        (f"{_plain(a.steps)} against {_plain(b.steps)} answers", a.steps, b.steps),
        (f"{_plain(a.seconds)} against {_plain(b.seconds)} seconds", a.seconds, b.seconds),
        (f"{money(a.cost, 'USD') or '-'} against {money(b.cost, 'USD') or '-'}", a.cost, b.cost),
    ]
    parts = [words for words, left, right in told if left is not None or right is not None]
    return [f"per solved task, {one.a} against {one.b}: {', '.join(parts)}"] if parts else []


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _value(value: Interval | None, metric: str) -> str:
    return number(value.value if value else None, metric)


def _bounds(value: Interval | None, metric: str) -> str:
    return interval(value.low, value.high, metric) if value else "-"


def task_name(key: tuple[str, str, str]) -> str:
    benchmark, task, seed = key
    return safe_text.line(f"{benchmark} / {task}" + (f" / seed {seed}" if seed else ""))
