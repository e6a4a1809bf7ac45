"""Ties the numbers of a training to the weights that they were measured on.

Each number has the optimiser step of its weights. summary.json takes a number as the trained model's only where model/
has the weights of that step.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from eval.scores.stats import Estimate
from eval.scores.summary import MetricRow
from eval.scores.summary_file import write_summary

UNTRAINED: Final = "untrained"  # the agent of a number from before the first step
SAMPLED: Final = "sampled"  # of rewards of the answers that were learned from


class StepValue(NamedTuple):
    """An evaluation's deciding metric, as a checkpoint keeps it: numbers only.

    step      of the weights; 0 are those before the first step
    interval  low, high, n, and the clusters if it is by cluster
    """

    step: int
    value: float
    interval: list[float]

    @classmethod
    def of(cls, step: int, value: Estimate) -> StepValue:
        clusters = [] if value.clusters is None else [value.clusters]
        return cls(step, value.value, [value.low, value.high, value.n, *clusters])

    @property
    def estimate(self) -> Estimate:
        low, high, count, *clusters = self.interval
        return Estimate(self.value, low, high, int(count), int(clusters[0]) if clusters else None)


class KeptWeights(NamedTuple):
    """What model/ gets: the weights after `step`. `rows`: of the evaluation, for the summary."""

    step: int
    rows: list[MetricRow]


def measured_rows(saved: dict[str, Any]) -> list[StepValue]:
    """The evaluations that a checkpoint tells of; one of before tells of the baseline and the best step only."""
    if "measured" in saved:
        return [StepValue(*each) for each in saved["measured"]]
    found = []
    if saved.get("first"):
        value, *interval = saved["first"]
        found.append(StepValue(0, value, interval))
    if saved.get("best") is not None and saved.get("interval"):
        found.append(StepValue(saved["best_step"], saved["best"], saved["interval"]))
    return found


def write_measured(path: Path, rows: Sequence[MetricRow], kept: int) -> None:
    """Writes summary.json of a training whose model/ has the weights after step `kept`.

    Raises ValueError for a row that names no step of its weights, or that tells of other weights under the name of the
    trained model.
    """
    for row in rows:
        told = f"{row.benchmark}, {row.metric}, by {row.agent}, of the steps {row.steps}"
        if row.agent == SAMPLED:
            continue
        if row.steps is None or len(row.steps) != 1:
            raise ValueError(f"{told}: a number belongs to the weights of one step")
        (step,) = row.steps
        if {UNTRAINED: 0, checkpoint(step): step}.get(row.agent, kept) != step:
            raise ValueError(f"{told}: model/ has the weights of step {kept}")
    write_summary(path, rows)


def checkpoint(step: int) -> str:
    """The agent of a number that was measured on weights which model/ does not have."""
    return f"checkpoint-{step}"
