"""Formats results for a terminal: aligned numbers, intervals, one line per comparison."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.results.read import Metric
from launcher.results.stats import FEW, FEW_NEAR_AN_END, Interval, few

RATES = (
    *("success", "accuracy", "rate", "hit", "in_box", "failures", "refused", "share", "so_far"),
    *("pass_at", "pass_all", "success_of_run", "success_by_state", "success_within"),
)


def is_rate(metric: str) -> bool:
    """Whether a metric is shown in per cent. Its name decides, because summary.json has no units. `a/b` is part b of
    metric a."""
    name = metric.partition("/")[0]
    return name.endswith(RATES) and not name.endswith("learning_rate")


FEW_CLUSTERS = (
    f"over fewer than {FEW} clusters (episodes, trajectories), or fewer than {FEW_NEAR_AN_END} with a value near 0 or "
    "1: the interval cannot be relied on"
)


def few_clusters(metric: Metric) -> bool:
    """Whether the interval of a metric is over too few clusters to be relied on."""
    if metric.clusters is None or metric.ci_low is None or metric.value is None:
        return False
    return few(metric.clusters, metric.value)


def number(value: float | None, metric: str) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if is_rate(metric) else f"{value:.3f}"


def interval(low: float | None, high: float | None, metric: str) -> str:
    if low is None or high is None:
        return "-"
    if is_rate(metric):
        return f"{100 * low:.1f} – {100 * high:5.1f} %"
    return f"{low:.3f} – {high:.3f}"


def headline(metrics: Sequence[Metric]) -> str:
    """The first rate of success of a summary.json, else its first figure, in a few words; "" without any."""
    known = [metric for metric in metrics if metric.value is not None]
    found = next((metric for metric in known if metric.metric == "success"), known[0] if known else None)
    if found is None:
        return ""
    bounds = interval(found.ci_low, found.ci_high, found.metric)
    words = [f"{found.benchmark} {found.metric} {number(found.value, found.metric)}"]
    words += [f"({' '.join(bounds.split())})"] * (bounds != "-") + [f"of {found.n}"] * bool(found.n)
    infra = f", {found.infra_failures} infra" if found.infra_failures else ""
    return " ".join(words) + infra


def probability(p: float) -> str:
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.4f}"


def difference(value: Interval, metric: str) -> str:
    if is_rate(metric):
        return f"{100 * value.value:+.1f} points ({100 * value.low:+.1f} to {100 * value.high:+.1f})"
    return f"{value.value:+.3f} ({value.low:+.3f} to {value.high:+.3f})"


def money(cost: float | None, currency: str) -> str | None:
    """`12.34 USD`, a small amount with four digits, `0 USD`; None for an unknown one."""
    if not cost:
        return None if cost is None else f"0 {currency}"
    return f"{cost:.2f} {currency}" if cost >= 1 else f"{cost:.4f} {currency}"
