"""A number of a training and the weights that it was measured on cannot be told apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.scores.stats import Estimate
from eval.scores.summary import MetricRow, row
from training.common.measuring.measured_weights import StepValue, measured_rows, write_measured


def of(agent: str, steps: list[int] | None) -> MetricRow:
    told: dict[str, Any] = {"benchmark": "b", "version": "1", "split": "", "infra": 0, "seed": 0}
    return row("loss", Estimate(0.5, 0.4, 0.6, 3), **told, agent=agent, steps=steps)


def test_a_number_of_other_weights_is_refused(tmp_path: Path) -> None:
    good = [of("trained", [4]), of("reward", [4]), of("checkpoint-2", [2]), of("untrained", [0]), of("sampled", [1, 3])]
    write_measured(tmp_path / "summary.json", good, 4)
    assert [line["steps"] for line in json.loads((tmp_path / "summary.json").read_text())] == [
        [4],
        [4],
        [2],
        [0],
        [1, 3],
    ]
    for bad in (of("trained", [2]), of("trained", None), of("trained", [2, 4]), of("checkpoint-4", [2])):
        with pytest.raises(ValueError, match=r"belongs to the weights of one step|model/ has the weights of step 4"):
            write_measured(tmp_path / "bad.json", [bad], 4)
    assert not (tmp_path / "bad.json").exists()


def test_a_checkpoint_of_before_tells_of_the_best_step_and_the_baseline_only() -> None:
    """As version 0.1 wrote it: no evaluation but these two, and the last one's number is not made up."""
    saved = {"best": 0.5, "best_step": 2, "interval": [0.4, 0.6, 9, 3], "first": [0.1, 0.0, 0.2, 9]}
    assert measured_rows(saved) == [StepValue(0, 0.1, [0.0, 0.2, 9]), StepValue(2, 0.5, [0.4, 0.6, 9, 3])]
    assert measured_rows({"best": None, "best_step": None, "interval": [], "first": []}) == []
    assert measured_rows({"measured": [[2, 0.5, [0.4, 0.6, 9]]]}) == [StepValue(2, 0.5, [0.4, 0.6, 9])]


@pytest.mark.ml
def test_what_was_measured_counts_only_where_the_same_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """A success of .9 is no best held-out loss, and a loss of other episodes none either."""
    from transformers import TrainerState

    from training.common.measuring.callbacks import Watch
    from training.common.measuring.in_training import EvaluationConfig

    def resumed(config: EvaluationConfig, **changes: Any) -> Watch:
        watch = Watch(config)
        vars(watch).update(changes)
        watch.restore(TrainerState(is_world_process_zero=True, stateful_callbacks={"Watch": saved.state()}))
        return watch

    of_steps = EvaluationConfig(episodes="held", count=9)
    saved = Watch(of_steps)
    saved.best, saved.best_step, saved.measured, saved.waited = 0.9, 4, [StepValue(4, 0.9, [0.8, 1.0, 9])], 3
    assert (resumed(of_steps).best, resumed(msgspec.structs.replace(of_steps, episodes="moved")).waited) == (0.9, 3)
    assert not capsys.readouterr().out
    by_loss = msgspec.structs.replace(of_steps, metric="loss")
    for config, changes in ((by_loss, {}), (of_steps, {"other_episodes": True})):
        other = resumed(config, **changes)
        assert (other.best, other.best_step, other.measured, other.waited) == (None, None, [], 0)
        assert "what it measured counts no more" in capsys.readouterr().out
