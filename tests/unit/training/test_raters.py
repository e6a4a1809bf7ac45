"""A reward model against raters, by hand and by scipy's published examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval.config import ConfigError
from training.data.faults import Faults
from training.data.pairs.human import episode_ratings, ratings
from training.reward.raters import agreement, rank_correlation, ranks, rater_agreement, spearman

FIRST, SECOND = ("e1", 0), ("e2", 0)


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert ranks([3.0, 1.0, 3.0, 2.0]) == [3.5, 1.0, 3.5, 2.0]


def test_spearman_of_scipys_example_and_of_what_does_not_vary() -> None:
    assert spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) == pytest.approx(0.82078268166812329)
    assert spearman([1, 1, 1], [1, 2, 3]) is None


def test_agreement_counts_two_answers_to_one_step_and_a_tie_of_the_model_is_wrong() -> None:
    given = {
        (FIRST, "a"): {"ann": 5.0, "bob": 4.0},
        (FIRST, "b"): {"ann": 1.0, "bob": 5.0},
        (FIRST, "c"): {"ann": 1.0},
        (SECOND, "a"): {"ann": 2.0},
        (SECOND, "b"): {"ann": 3.0},
    }
    # means 4.5, 3, 1; 2, 3: all of the four couples of one step differ
    rewards = {
        (FIRST, "a"): 1.0,
        (FIRST, "b"): 0.5,
        (FIRST, "c"): 0.5,
        (SECOND, "a"): 0.0,
        (SECOND, "b"): -1.0,
    }
    found = agreement(rewards, given)
    assert found is not None
    assert (found.value, found.n) == (0.5, 4)  # a over b and a over c are right; b and c a tie; the second step wrong
    both = rater_agreement(given)
    assert both is not None
    assert (both.value, both.n) == (0.0, 1)  # ann and bob of a and b: they differ


def test_the_interval_of_the_rank_correlation_holds_its_value() -> None:
    rows = [(f"e{number % 5}", float(number), float(number + (number % 3) * 2)) for number in range(20)]
    found = rank_correlation(rows, 0)
    assert found is not None
    assert found == rank_correlation(rows, 0)
    assert found.low <= found.value <= found.high <= 1
    assert (found.n, found.clusters) == (20, 5)


def test_ratings_by_episode_and_step(tmp_path: Path) -> None:
    file = tmp_path / "ratings.json"
    one = {"e1": {"0": {"action": "click(1)", "score": 4}, "1": [{"action": "done()", "score": 1}]}}
    other = {"e1": {"0": [{"action": "click(1)", "score": 2}, {"action": "wait()", "score": 0.5}]}}
    file.write_text(json.dumps([one, other]))
    assert ratings(file, Faults("fail")) == {
        (("e1", 0), "click(1)"): {"0": 4.0, "1": 2.0},
        (("e1", 1), "done()"): {"0": 1.0},
        (("e1", 0), "wait()"): {"1": 0.5},
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.csv", "episode;rating;rater\ne1;1,5;ann\ne1;4;bob\ne2;3;ann\n"),
        ("r.jsonl", '{"episode": "e1", "rating": 1.5, "rater": "ann"}\n'),
        ("r.json", '[{"e1": 1.5, "e2": 3}, {"e1": 4}]'),
    ],
)
def test_ratings_of_whole_episodes(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    wanted = {
        "r.csv": {"e1": {"ann": 1.5, "bob": 4.0}, "e2": {"ann": 3.0}},
        "r.jsonl": {"e1": {"ann": 1.5}},
        "r.json": {"e1": {"0": 1.5, "1": 4.0}, "e2": {"0": 3.0}},
    }
    assert episode_ratings(tmp_path / name, Faults("fail")) == wanted[name]


def test_ratings_of_answers_are_none_of_episodes(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("episode,step,response,rating\n")
    with pytest.raises(ConfigError, match="allowed: episode, rating; and rater"):
        episode_ratings(file, Faults("fail"))


@pytest.mark.parametrize("wrong", [{"e1": 3}, {"e1": {"0": {"action": "x"}}}, {"e1": {"0": "x"}}, 7])
def test_ratings_of_another_shape_are_refused(wrong: object, tmp_path: Path) -> None:
    file = tmp_path / "ratings.json"
    file.write_text(json.dumps(wrong))
    with pytest.raises(ConfigError, match=r'allowed: ."EPISODE": '):
        ratings(file, Faults("fail"))
