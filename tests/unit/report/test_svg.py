"""Axes with round numbers, curves that keep their extremes."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from launcher.report.svg import (
    HEIGHT,
    WIDTH,
    RateEstimate,
    Series,
    curves,
    estimates,
    nice_ticks,
    smooth,
    thin,
    tick_labels,
)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.13, 2.7, [0.5, 1.0, 1.5, 2.0, 2.5]),
        (3, 3, [3]),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(ticks)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_lie_inside_and_are_few(low: float, span: float) -> None:
    high = low + span
    assume(span > abs(low) * 1e-6)  # finer than that, doubles have no round numbers to offer
    ticks = nice_ticks(low, high)
    assert 1 <= len(ticks) <= 8
    assert all(low - span * 1e-3 <= tick <= high + span * 1e-3 for tick in ticks)
    assert len(set(tick_labels(ticks))) == len(ticks)


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        ([0, 0.5, 1.0], ["0.0", "0.5", "1.0"]),
        ([0, 20000, 40000], ["0k", "20k", "40k"]),
        ([-1, 0, 1], ["−1", "0", "1"]),
        ([0, 2.5e-5, 5e-5], ["0", "2.5e-5", "5e-5"]),
        ([1e-4, 1.002e-4, 1.004e-4], ["0.0001", "0.0001002", "0.0001004"]),
    ],
)
def test_labels_share_their_decimals(ticks: list[float], labels: list[str]) -> None:
    assert tick_labels(ticks) == labels


def test_thinning_keeps_every_spike() -> None:
    points = [(float(k), 0.0) for k in range(100_000)]
    points[54_321] = (54_321.0, 9.0)
    points[77_777] = (77_777.0, -9.0)
    kept = thin(points)
    assert len(kept) < 1000
    assert {(54_321.0, 9.0), (77_777.0, -9.0), points[0], points[-1]} <= set(kept)
    assert kept == sorted(kept)


@given(st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=300))
def test_a_moving_average_stays_between_the_extremes(values: list[float]) -> None:
    line = smooth([(float(k), v) for k, v in enumerate(values)])
    assert len(line) == len(values)
    assert min(values) - 1e-3 <= min(v for _, v in line) <= max(v for _, v in line) <= max(values) + 1e-3


@given(
    st.lists(
        st.tuples(st.integers(0, 10**7), st.floats(-1e12, 1e12)), min_size=1, max_size=50, unique_by=lambda p: p[0]
    )
)
def test_every_point_lies_on_the_chart(points: list[tuple[int, float]]) -> None:
    markup = curves([Series("loss", [(float(x), y) for x, y in sorted(points)])], "loss over steps")
    for x, y in re.findall(r"([-\d.]+),([-\d.]+)", " ".join(re.findall(r'points="([^"]*)"', markup))):
        assert 0 <= float(x) <= WIDTH
        assert 0 <= float(y) <= HEIGHT
    assert "nan" not in markup


def test_estimates_show_value_and_bounds() -> None:
    markup = estimates(
        [RateEstimate("before", 0.02, 0.005, 0.07), RateEstimate("<after>", 0.93, 0.86, 0.97)], "success"
    )
    assert "93.0 %  (86.0 – 97.0)" in markup
    assert "&lt;after&gt;" in markup
