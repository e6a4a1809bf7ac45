"""The curves of a run's page: all of them, or a word about those that are not there."""

from __future__ import annotations

import math

from launcher.monitor.server.pages.metrics import CHARTS, charts, curves, last_values, notes
from launcher.report.metrics import RunMetrics


def run(count: int, **infinite: int) -> tuple[str, RunMetrics]:
    values = {f"m{number:03}": [(0.0, 1.0), (1.0, math.pi)] for number in range(count)}
    return "train-1", RunMetrics({**values, "once": [(0.0, 1.0)]}, infinite, 0)


def drawn(found: list[tuple[str, RunMetrics]]) -> list[str]:
    names = curves(*(metrics for _, metrics in found))
    return [chart["metric"] for chart in charts(found, names)]


def told(found: list[tuple[str, RunMetrics]]) -> list[str]:
    return notes(found, curves(*(metrics for _, metrics in found)))


def test_every_curve_of_a_training_is_drawn() -> None:
    assert drawn([run(CHARTS)]) == [f"m{number:03}" for number in range(CHARTS)]
    assert told([run(CHARTS)]) == []


def test_curves_that_are_too_many_are_named() -> None:
    assert len(drawn([run(CHARTS + 2)])) == CHARTS
    assert told([run(CHARTS + 2)]) == [f"2 more metrics are in the CSV of each run: m{CHARTS:03}, m{CHARTS + 1:03}."]
    (note,) = told([run(CHARTS + 30)])
    assert note.endswith(f"m{CHARTS + 19:03}, and 10 more.")


def test_losses_that_are_no_numbers_are_told() -> None:
    """They are no point of a curve, and a training that diverged must not look like one that stopped."""
    assert told([run(1, loss=1200, grad_norm=3)]) == [
        "Values that are not finite, and so are not drawn: grad_norm (3) of train-1, loss (1,200) of train-1."
    ]
    assert told([]) == []
    assert drawn([]) == []


def test_a_name_that_would_act_on_a_reader_is_shown() -> None:
    points = [(0.0, 1.0), (1.0, 2.0)]
    found = [("train-1", RunMetrics({"a\u202eb": points}, {"c\x1bd": 1}, 0))]
    assert drawn(found) == [r"a\u202eb"]
    assert r"c\x1bd (1)" in told(found)[0]


def test_last_values_with_the_lowest_and_the_highest() -> None:
    first = RunMetrics({"eval/loss": [(0.0, 3.0), (1.0, 1.0), (2.0, 2.0)], "epoch": [(0.0, 0.0), (1.0, 1.0)]}, {}, 0)
    second = RunMetrics({"reward": [(0.0, 0.5), (1.0, 0.25)]}, {}, 0)
    found = last_values([("lr=1", first), ("lr=2", second)])
    assert found["names"] == ["eval/loss", "reward"]  # not what is the same in every training
    assert found["rows"] == [("lr=1", [(2.0, 1.0, 3.0), None]), ("lr=2", [None, (0.25, 0.25, 0.5)])]
