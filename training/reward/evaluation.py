"""Evaluates a reward model on held-out pairs or episodes: accuracy, calibration, margins, how it orders episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eval.scores.stats import Estimate, by_cluster, ratio, wilson
from eval.scores.summary import MetricRow, row
from training.data.pairs.store import Pair, Pairs
from training.reward.episodes import JudgedEpisode
from training.reward.model import RewardModel, with_response
from training.reward.raters import agreement, bootstrapped, rank_correlation, ranks, rater_agreement

BINS: Final = 10


@dataclass(frozen=True)
class Bin:
    """Pairs whose confidence lies in [low, high): the mean confidence, and the rate at which the model was right."""

    low: float
    high: float
    confidence: float
    right: Estimate


def margins(model: RewardModel, pairs: Pairs, batch: int = 64) -> list[float]:
    """reward(chosen) - reward(rejected) of every pair, in order."""
    differences: list[float] = []
    for start in range(0, len(pairs), batch):
        part = list(pairs[start : start + batch])
        images = [pairs.images(pair) for pair in part]
        chosen = model.score([with_response(pair.prompt, pair.chosen) for pair in part], images)
        rejected = model.score([with_response(pair.prompt, pair.rejected) for pair in part], images)
        differences += [a - b for a, b in zip(chosen, rejected, strict=True)]
    return differences


def calibration(margins: Sequence[float], bins: int = BINS) -> tuple[list[Bin], float]:
    """(non-empty bins, expected calibration error) of margins.

    The model's answer is the side with the higher reward; its confidence in it is sigmoid(|margin|), from 0.5 to 1. The
    error is the mean over pairs of |rate right - mean confidence| of their bin (M. Naeini and others, 2015).
    """
    members: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for margin in margins:
        confidence = 1 / (1 + math.exp(-min(abs(margin), 700.0)))
        members[min(bins - 1, int((confidence - 0.5) * 2 * bins))].append((confidence, margin > 0))
    out, error = [], 0.0
    for index, member in enumerate(members):
        right = wilson(sum(ok for _, ok in member), len(member))
        if right is None:
            continue
        confidence = math.fsum(value for value, _ in member) / len(member)
        out.append(Bin(0.5 + index / (2 * bins), 0.5 + (index + 1) / (2 * bins), confidence, right))
        error += abs(right.value - confidence) * len(member) / len(margins)
    return out, error


def rows(pairs: Sequence[Pair], found: Sequence[float], *, split: str, seed: int, step: int) -> list[MetricRow]:
    """Rows for summary.json: pair_accuracy (a tie is wrong), the same per source and per note, mean_margin, and
    calibration_error (without an interval). Intervals are by task: pairs of one task are not independent.

    step  of the weights that gave the margins
    """
    right = [(pair.split_key or pair.task_id, float(margin > 0)) for pair, margin in zip(pairs, found, strict=True)]
    estimates: list[tuple[str, Estimate | None]] = [("pair_accuracy", by_cluster(right))]
    for name, values in (("source", [pair.source for pair in pairs]), ("note", [pair.note for pair in pairs])):
        for value in sorted(set(values) - {""}):
            among = [ok for ok, other in zip(right, values, strict=True) if other == value]
            estimates.append((f"pair_accuracy/{name}/{value}", by_cluster(among)))
    margins_by_task: dict[str, list[float]] = {}
    for (task, _), margin in zip(right, found, strict=True):
        margins_by_task.setdefault(task, []).append(margin)
    tasks = margins_by_task.values()
    estimates.append(("mean_margin", ratio([math.fsum(task) for task in tasks], [float(len(task)) for task in tasks])))
    error = calibration(found)[1]
    estimates.append(("calibration_error", Estimate(error, error, error, len(found))))
    told: dict[str, Any] = {"benchmark": "preference pairs", "version": "1", "split": split, "infra": 0}
    return [row(name, estimate, **told, seed=seed, agent="reward", steps=[step]) for name, estimate in estimates]


def roc_area(rows: Sequence[tuple[float, float]]) -> float | None:
    """Of (score, solved, 0 or 1): the share of all couples of a solved episode and another in which the solved one has
    the higher score, a tie counting half: the area under the ROC curve (J. Hanley and B. McNeil, 1982). None where all
    ended alike."""
    solved = sum(outcome for _, outcome in rows)
    failed = len(rows) - solved
    if not solved or not failed:
        return None
    places = ranks([score for score, _ in rows])
    high = math.fsum(place for place, (_, outcome) in zip(places, rows, strict=True) if outcome)
    return (high - solved * (solved + 1) / 2) / (solved * failed)


def episode_rows(
    episodes: Sequence[JudgedEpisode], scores: Sequence[float], *, split: str, seed: int, step: int
) -> list[MetricRow]:
    """Rows for summary.json, with intervals by task: accuracy of the more likely outcome, and `commonest`, that of
    always saying the one that is more common; auc; calibration_error of the probabilities; `agreement` with the outcome
    of two episodes of one task; with ratings, that of two raters and the rank correlation."""
    right = [(each.task_id, float((score > 0) == each.solved)) for each, score in zip(episodes, scores, strict=True)]
    solved = sum(each.solved for each in episodes) * 2 >= len(episodes)
    ranked = [(each.task_id, score, float(each.solved)) for each, score in zip(episodes, scores, strict=True)]
    given = {((each.task_id, 0), each.name): each.given for each in episodes}
    rewards = dict(zip(given, scores, strict=True))
    error = calibration(outcome_margins(episodes, scores))[1]
    estimates = [
        ("accuracy", by_cluster(right)),
        ("commonest", by_cluster([(each.task_id, float(each.solved == solved)) for each in episodes])),
        ("auc", bootstrapped(ranked, roc_area, f"auc {seed}")),
        ("calibration_error", Estimate(error, error, error, len(episodes))),
        ("agreement", agreement(rewards, given)),
    ]
    if any(each.ratings for each in episodes):
        means = [
            (each.task_id, score, math.fsum(each.ratings.values()) / len(each.ratings))
            for each, score in zip(episodes, scores, strict=True)
        ]
        estimates += [("rater_agreement", rater_agreement(given)), ("rank_correlation", rank_correlation(means, seed))]
    told: dict[str, Any] = {"benchmark": "judged episodes", "version": "1", "split": split, "infra": 0}
    return [row(name, estimate, **told, seed=seed, agent="reward", steps=[step]) for name, estimate in estimates]


def outcome_margins(episodes: Sequence[JudgedEpisode], scores: Sequence[float]) -> list[float]:
    """Each score as a margin: above 0 where the model holds the outcome that came for the likelier one."""
    return [score if each.solved else -score for each, score in zip(episodes, scores, strict=True)]


def reliability(margins: Sequence[float], path: Path, what: str = "pairs") -> None:
    """Draws confidence against the rate of being right, with Wilson intervals, and how many pairs each bin holds.
    `what` they are."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    bins, error = calibration(margins)
    figure = Figure(figsize=(5, 6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    top.plot([0.5, 1], [0.5, 1], color="0.6", linestyle="--", linewidth=1, label="calibrated")
    x = [bucket.confidence for bucket in bins]
    y = [bucket.right.value for bucket in bins]
    whiskers = [
        [bucket.right.value - bucket.right.low for bucket in bins],
        [bucket.right.high - bucket.right.value for bucket in bins],
    ]
    top.errorbar(x, y, yerr=whiskers, fmt="o", color="tab:blue", capsize=3, label="observed, 95 % interval")
    top.set(ylabel=f"share of {what} judged right", ylim=(-0.03, 1.03), xlim=(0.48, 1.02))
    top.set_title(f"{len(margins)} held-out {what}, expected calibration error {error:.3f}", fontsize=10)
    top.legend(loc="lower right", fontsize=8)
    bottom.bar(
        [bucket.low for bucket in bins],
        [bucket.right.n for bucket in bins],
        width=0.5 / BINS,
        align="edge",
        edgecolor="w",
    )
    bottom.set(xlabel="confidence: sigmoid(|reward margin|)", ylabel=what)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, format="png")
    temporary.replace(path)
