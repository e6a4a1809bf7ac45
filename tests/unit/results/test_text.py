"""How figures are shown."""

from __future__ import annotations

import pytest

from launcher.results.text import number


@pytest.mark.parametrize(
    "metric",
    [
        *("success", "success/program/gedit", "success_of_run", "success_by_state", "success_within/10", "pass_at/3"),
        *("pass_all/3", "step_accuracy/click", "parse_failures", "refused", "click_in_box"),
    ],
)
def test_a_share_is_shown_in_per_cent(metric: str) -> None:
    assert number(0.125, metric) == "12.5 %"


@pytest.mark.parametrize("metric", ["mean_steps", "steps_per_solved", "learning_rate", "loss", "score"])
def test_what_is_no_share_is_a_number(metric: str) -> None:
    assert number(0.125, metric) == "0.125"
