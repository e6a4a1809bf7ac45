"""When a training ends because its policy has collapsed, and when it does not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval.config import ConfigError
from training.rl.learning.collapse import SuccessWatch, collapsed

pytestmark = pytest.mark.ml
ALIVE = [(40, 64)] * 6


def generation(solved: int, of: int = 64) -> Any:
    """One group of so many rollouts."""
    rollouts = [SimpleNamespace(episode=SimpleNamespace(success=number < solved)) for number in range(of)]
    return SimpleNamespace(judged=[SimpleNamespace(rollouts=rollouts)])


def test_next_to_nothing_in_five_generations_after_a_lot_in_five_is_a_collapse() -> None:
    """200 of 320 is 62.5 %, and a tenth of it 20 of 320."""
    assert collapsed([*ALIVE, (0, 64), (0, 64), (0, 64), (0, 64)], 0.1) is None  # 40 of 320 yet
    told = collapsed([*ALIVE, (0, 64), (0, 64), (0, 64), (0, 64), (19, 64)], 0.1)
    assert told == {
        "measure": "success",
        "value": 19 / 320,
        "bound": "below 0.0625",
        "generations": 5,
        "text": "19 of 320 rollouts succeeded in the generations 6 to 10, and 200 of 320 in 0 to 4",
    }
    assert collapsed([*ALIVE, (0, 64), (0, 64), (0, 64), (0, 64), (20, 64)], 0.1) is None


def test_the_best_generations_are_found_wherever_they_are() -> None:
    told = collapsed([(1, 8)] * 3 + [(6, 8)] * 5 + [(1, 8)] * 2 + [(0, 8)] * 5, 0.1)
    assert told is not None
    assert told["text"] == "0 of 40 rollouts succeeded in the generations 10 to 14, and 30 of 40 in 3 to 7"


@pytest.mark.parametrize(
    "counts",
    [
        [],
        [(0, 64)] * 40,  # it never solved anything
        [(3, 64)] * 5 + [(0, 64)] * 10,  # 15 successes: chance
        [(5, 64)] * 40,
        [(64, 64)] * 5,
        [(1, 64)] * 10 + [(60, 64)] * 10,  # it learns
        [(40, 64), *[(0, 64)] * 4],  # five generations are no two windows
    ],
)
def test_what_is_none(counts: list[tuple[int, int]]) -> None:
    assert collapsed(counts, 0.1) is None


def test_a_training_that_goes_on_knows_what_was_solved_before(tmp_path: Path) -> None:
    watch = SuccessWatch(0.1, 1, tmp_path)
    for _ in range(5):
        watch.note(generation(32))
    saved = json.loads(json.dumps(watch.state()))
    again = SuccessWatch(0.1, 1, tmp_path)
    state: Any = SimpleNamespace(global_step=5, stateful_callbacks={"SuccessWatch": saved})
    again.on_train_begin(None, state, None)
    for _ in range(4):
        again.note(generation(0))
    with pytest.raises(ConfigError, match=r"0 of 320 .* in the generations 5 to 9, and 160 of 320 in 0 to 4"):
        again.note(generation(0))
    told = json.loads((tmp_path / "results" / "collapse.json").read_text())
    assert (told["step"], told["checkpoint_before"]) == (9, None)
    fresh = SuccessWatch(0.1, 1, tmp_path)  # another training, in whose state something of an earlier one stands
    state.global_step = 0
    fresh.on_train_begin(None, state, None)
    assert fresh.counts == []
    old = SuccessWatch(0.1, 1, tmp_path)  # a checkpoint of before this watch
    old.on_train_begin(None, SimpleNamespace(global_step=5, stateful_callbacks=None), None)
    assert old.counts == []
