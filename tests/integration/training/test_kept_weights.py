"""The number that a training reports was measured on the weights that its model/ has, in all five trainers.

In place of an evaluation each step has a number that is made of the weights in memory. So the number and the weights
in model/ can be compared, whichever step is the best one.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from eval.environments.registry import TasksConfig
from eval.scores.stats import Estimate
from tests.integration.rl.conftest import rl_config
from tests.integration.training import preference
from tests.integration.training.test_precision import TRAIN, config, made
from training.common.measuring.callbacks import Watch
from training.common.measuring.in_training import EvaluationConfig
from training.grpo import train as grpo

__all__ = ["made"]
pytestmark = [
    pytest.mark.ml,
    # TRL asks peft's model by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
STEPS = 3
BEST = 2
RATE = 1e-3
LATER = ("dpo", "reward", "rl")
BY_PAIRS = ("dpo", "reward")  # whose metric is a loss: the lowest is the best
# each step's number but for the last digits, which the weights give
GOODNESS = {
    method: {1: 0.7, 2: 0.4, 3: 0.9} if method in BY_PAIRS else {1: 0.3, 2: 0.6, 3: 0.1} for method in ("sft", *LATER)
}


def number(tensors: Iterable[Any]) -> float:
    """From 0 to 1e-4, of the weights alone and not of their order or names."""
    squares = sorted(float((value.double() ** 2).sum()) for value in tensors)
    return sum(squares) % 1 * 1e-4


def in_memory(model: Any) -> float:
    return number(value.detach() for _, value in model.named_parameters())


def in_files(folder: Path) -> float:
    from safetensors.torch import load_file

    return number(value for file in folder.glob("*.safetensors") for value in load_file(file).values())


def training(method: str, made: dict[str, Path], evaluation: EvaluationConfig, out: Path) -> bool:
    """Three steps of a trainer."""
    values: dict[str, Any] = {"steps": STEPS, "learning_rate": RATE, "save_every": 100, "evaluation": evaluation}
    if method != "rl":
        return bool(TRAIN[method](config(method, made, **values), out, None))
    from training.rl import train as rl

    lucky = "tests.integration.rl.lucky:Lucky"  # scores that even a model that knows nothing learns from
    chosen = rl_config(made["model"], environment=lucky, prompt=preference.PROMPT, **values)
    return bool(rl.train(chosen, out, None))


@pytest.mark.parametrize("keep", ["last", "best"])
@pytest.mark.parametrize("method", ["sft", *(pytest.param(name, marks=pytest.mark.nightly) for name in LATER)])
def test_the_number_is_that_of_the_weights_in_model(
    method: str, keep: Any, made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[int, float] = {}
    collects: list[bool] = []  # what is imported with a trainer is imported without garbage collections

    def scores(watch: Watch, args: Any, state: Any, model: Any) -> dict[str, Estimate]:
        step = state.global_step
        found[step] = GOODNESS[method][step] + in_memory(model)
        collects.append(gc.isenabled())
        return {watch.config.decides: Estimate(found[step], 0.0, 1.0, 9)}

    monkeypatch.setattr(Watch, "_scores", scores)
    if method in BY_PAIRS:
        evaluation = EvaluationConfig(metric="loss", every=1, count=5, keep=keep)
    else:
        tasks = TasksConfig(count=1, seed=1_000_000)
        evaluation = EvaluationConfig(environment="click", every=1, tasks=tasks, keep=keep)
    assert training(method, made, evaluation, tmp_path)
    kept = BEST if keep == "best" else STEPS
    rows = json.loads((tmp_path / "results" / "summary.json").read_text())
    told = {row["agent"]: row for row in rows if row["metric"] == evaluation.decides}
    trained, saved = told["trained"], in_files(tmp_path / "model")
    at = next(step for step, value in found.items() if value - GOODNESS[method][step] == pytest.approx(saved, abs=1e-9))
    print(
        f"| {method} | {keep} | {BEST} | {STEPS} | {trained['value']:.8f} of step {trained['steps'][0]} | step {at} |"
    )
    assert len(set(found.values())) == STEPS  # the weights moved in each step
    assert (trained["value"], trained["steps"], at) == (found[kept], [kept], kept)
    if kept != BEST:
        assert told[f"checkpoint-{BEST}"]["value"] == found[BEST]
    assert collects == [True] * STEPS


@pytest.mark.nightly
def test_grpos_numbers_name_the_steps_of_the_weights_that_sampled(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.grpo.trainer import Trainer

    sampled: dict[int, float] = {}
    last: list[float] = []
    generate, save = Trainer._generate_single_turn, grpo.save_model

    def generating(trainer: Any, *given: Any, **options: Any) -> Any:
        sampled[trainer.state.global_step] = in_memory(trainer.accelerator.unwrap_model(trainer.model))
        return generate(trainer, *given, **options)

    def saving(trainer: Any, folder: Path) -> None:
        last.append(in_memory(trainer.accelerator.unwrap_model(trainer.model)))
        save(trainer, folder)

    monkeypatch.setattr(Trainer, "_generate_single_turn", generating)
    monkeypatch.setattr(grpo, "save_model", saving)
    assert TRAIN["grpo"](config("grpo", made, steps=STEPS, learning_rate=RATE), tmp_path, None)
    (row,) = json.loads((tmp_path / "results" / "summary.json").read_text())
    saved = in_files(tmp_path / "model")
    print(f"| grpo | - | - | {STEPS} | {row['value']:.8f} of the steps {row['steps']} | step {STEPS} |")
    assert (row["agent"], row["steps"]) == ("sampled", sorted(sampled))
    assert len({*sampled.values(), *last}) == len(sampled) + 1
    assert saved == pytest.approx(last[0], abs=1e-9)
