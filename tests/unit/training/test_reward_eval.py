"""Numbers of the reward model that can be worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.support.refusing import refused
from training.reward.evaluation import calibration, roc_area
from training.reward.train import main


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def test_confidence_that_is_right_as_often_as_it_says_has_no_error() -> None:
    found = [logit(0.75)] * 3 + [-logit(0.75)] + [logit(0.96)] * 24 + [-logit(0.96)]
    bins, error = calibration(found)
    assert error == pytest.approx(0, abs=1e-12)
    assert [(round(one.low, 2), one.right.n, one.right.value) for one in bins] == [(0.75, 4, 0.75), (0.95, 25, 0.96)]


def test_confidence_that_is_never_right_has_its_own_size_of_error() -> None:
    bins, error = calibration([-50.0] * 5 + [0.0] * 5)
    assert error == pytest.approx((1.0 + 0.5) / 2)  # a tie is wrong at confidence one half
    assert [one.right.value for one in bins] == [0.0, 0.0]


def test_the_area_counts_couples_of_a_solved_and_a_failed_one_and_a_tie_for_a_half() -> None:
    """Of 2 solved and 3 others: .9 is above all three; .5 is above .2, ties with .5 and is below .7."""
    rows = [(0.9, 1.0), (0.5, 1.0), (0.5, 0.0), (0.7, 0.0), (0.2, 0.0)]
    assert roc_area(rows) == pytest.approx((3 + 1.5) / 6)
    assert roc_area([(-score, outcome) for score, outcome in rows]) == pytest.approx(1 - 4.5 / 6)
    assert roc_area([(0.1, 1.0), (0.2, 1.0)]) is None


@pytest.mark.ml
def test_the_loss_is_that_of_bradley_and_terry_and_pulls_to_the_middle() -> None:
    import torch

    from training.reward.network import bradley_terry, last_token

    chosen, rejected = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])
    plain = (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(2))) / 2
    assert bradley_terry(chosen, rejected).item() == pytest.approx(plain)
    assert bradley_terry(chosen, rejected, 0.1).item() == pytest.approx(plain + 0.1 * (1 + 4) / 2)
    assert bradley_terry(chosen + 7, rejected + 7).item() == pytest.approx(plain, abs=1e-5)
    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 1, 1], [0, 1, 1, 0], [1, 0, 0, 0]])
    assert last_token(mask).tolist() == [2, 3, 2, 0]
    with pytest.raises(ValueError, match="without a token"):
        last_token(torch.tensor([[1, 1], [0, 0]]))


GOOD = {"model": ".", "pairs": ".", "steps": 3}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"centring": -1}, "at `$.centring`"),
        ({"evaluations": "x"}, "unknown field `evaluations`"),
        ({"evaluation": {"metric": "matches"}}, "a reward model answers nothing; allowed: loss"),
        ({"pairs": "nowhere"}, "no folder nowhere"),
        ({"pairs": None}, "give either pairs, of answers, or episodes"),
        ({"episodes": {"path": "."}}, "give either pairs, of answers, or episodes"),
        ({"pairs": None, "episodes": {"path": "nowhere"}}, "no folder nowhere"),
        ({"pairs": None, "episodes": {"path": "."}, "centring": 0.1}, "centring: of pairs"),
        ({"pairs": None, "episodes": {"path": ".", "split": {"test": 1.5}}}, "at `$.episodes.split.test`"),
        ({"pairs": None, "episodes": {"path": ".", "prompt": {"demonstration": {}}}}, "episodes.prompt.demonstration"),
        ({"steps": None}, "either steps or epochs"),
    ],
)
def test_a_bad_configuration_is_one_line_and_exit_code_78(
    change: dict[str, object], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(main, {**GOOD, **change}, tmp_path, capsys)
