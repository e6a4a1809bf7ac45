"""The rows of summary.json for ScreenSpot: which part of the questions was answered by a point in the box."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from eval.benchmarks.screenspot.data import PLATFORMS, TYPES, Edition, SpotTarget
from eval.scores.stats import Estimate, by_cluster, rate

Cut = Callable[[SpotTarget], str]
# the metrics beside `accuracy`
CUTS: Final[dict[Edition, tuple[Cut, ...]]] = {
    "v1": (
        lambda target: f"accuracy/{target.platform}/{target.kind}",
        lambda target: f"accuracy/{target.platform}",
        lambda target: f"accuracy/{target.kind}",
        lambda target: f"source/{target.source}",
    ),
    "pro": (
        lambda target: f"accuracy/{target.group}/{target.kind}",
        lambda target: f"accuracy/{target.group}",
        lambda target: f"accuracy/{target.kind}",
        lambda target: f"platform/{target.platform}",
        lambda target: f"source/{target.source}",
    ),
}
CUTS["v2"] = CUTS["v1"]


@dataclass(frozen=True)
class Judged:
    """A question with its answer. `unparsed`: why the answer had no point; `infra`: why there is no answer."""

    target: SpotTarget
    correct: bool = False
    unparsed: str | None = None
    infra: str | None = None


def metrics_of(target: SpotTarget, edition: Edition) -> list[str]:
    """The metrics that a question counts for."""
    return ["accuracy", *(cut(target) for cut in CUTS[edition])]


def estimates(judged: Sequence[Judged], edition: Edition) -> list[tuple[str, Estimate | None]]:
    """(metric, value with its interval), by screenshot: questions about one screenshot are not independent.

    accuracy                 of all questions; an answer without a point is wrong, and so is a question that the
                             infrastructure kept from being asked
    accuracy/PLATFORM/KIND   and the other parts (`CUTS`)
    macro                    of v1 and v2: the mean of the six accuracies of platform and kind, as the first paper's
                             column `Average` is; papers of v2 give the mean over questions, which is `accuracy`
    parse_failures           answers without a point, of all answers
    """
    by_metric: dict[str, list[tuple[str, float]]] = {"accuracy": []}
    for cut in CUTS[edition]:
        for name in sorted({cut(each.target) for each in judged}):
            by_metric.setdefault(name, [])
    for each in judged:
        for name in metrics_of(each.target, edition):
            by_metric[name].append((each.target.image, float(each.correct)))
    found: list[tuple[str, Estimate | None]] = [(name, by_cluster(values)) for name, values in by_metric.items()]
    if edition != "pro":
        found.insert(1, ("macro", macro(judged)))
    answered = [(each.target.image, float(each.unparsed is not None)) for each in judged if each.infra is None]
    return [*found, ("parse_failures", by_cluster(answered))]


def macro(judged: Sequence[Judged]) -> Estimate | None:
    """The mean of the accuracies of the cells (platform, kind); None where a cell is empty.

    It is a weighted mean over questions, each with the weight 1 / (cells x questions of its cell), so the interval by
    screenshot is that of every other rate; that the weights come from the sample makes it a little wider.
    """
    counts = Counter((each.target.platform, each.target.kind) for each in judged)
    cells = [(platform, kind) for platform in PLATFORMS for kind in TYPES]
    if not all(counts[cell] for cell in cells):
        return None
    shots: dict[str, tuple[list[float], list[float]]] = {}
    for each in judged:
        weight = 1 / (len(cells) * counts[each.target.platform, each.target.kind])
        parts, wholes = shots.setdefault(each.target.image, ([], []))
        parts.append(weight * each.correct)
        wholes.append(weight)
    found = rate([math.fsum(parts) for parts, _ in shots.values()], [math.fsum(wholes) for _, wholes in shots.values()])
    return None if found is None else replace(found, n=len(judged))
