"""`ema`: the average of the weights, against a loop by hand over the weights after each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError
from tests.integration.training.test_precision import TRAIN, config, made
from tests.integration.training.test_two_processes import TORCHRUN, run, weights, write
from tests.integration.training.test_validation_loss import (
    EARLY,
    RISING,
    alone,
    assert_the_best_is_kept,
    material,
    settings,
    told,
)
from training.common.model.ema import EMA
from training.data.faults import Faults
from training.options import LoraConfig

__all__ = ["made", "material"]
pytestmark = [
    pytest.mark.ml,
    # TRL asks peft's model by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
DECAY, STEPS = 0.8, 4
MOVING: dict[str, Any] = {"ema": DECAY, "steps": STEPS, "learning_rate": 1e-3, "save_every": 2}


def watched(trainer: Any) -> list[dict[str, Any]]:
    """The trained weights at the begin and after each step, filled while the trainer trains."""
    from transformers import TrainerCallback

    seen: list[dict[str, Any]] = []

    class Look(TrainerCallback):  # type: ignore[misc]
        def _look(self, model: Any) -> None:
            seen.append({n: p.detach().clone().double() for n, p in model.named_parameters() if p.requires_grad})

        def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any) -> None:
            self._look(model)

        def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any) -> None:
            self._look(model)

    trainer.add_callback(Look())
    return seen


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2, alpha=4)], ids=["all weights", "LoRA"])
def test_it_is_that_of_a_loop_by_hand(made: dict[str, Path], tmp_path: Path, lora: LoraConfig | None) -> None:
    from training.common.entry import run_training
    from training.sft import train as sft

    chosen = config("sft", made, lora=lora, **MOVING)
    trainer = sft.make_trainer(chosen, sft.open_data(chosen, chosen.prompt.builder(), Faults()), tmp_path)
    seen = watched(trainer)
    assert run_training(trainer, chosen, tmp_path, None)
    assert len(seen) == STEPS + 1
    average = dict(seen[0])
    for weights_after in seen[1:]:
        average = {name: DECAY * value + (1 - DECAY) * weights_after[name] for name, value in average.items()}
    after = dict(trainer.model.named_parameters())
    for name, value in average.items():
        assert float((after[name].double() - value).detach().abs().max()) < 1e-6, name  # float32
    assert max(float((seen[-1][name] - value).abs().max()) for name, value in average.items()) > 1e-4


@pytest.mark.nightly
@pytest.mark.parametrize("method", TRAIN)
def test_every_trainer_saves_it_and_goes_on_bit_for_bit(method: str, made: dict[str, Path], tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    chosen = config(method, made, **MOVING)
    assert TRAIN[method](chosen, tmp_path / "straight", None)
    middle, end = (tmp_path / "straight" / "checkpoints" / f"checkpoint-{step}" for step in (2, STEPS))
    assert TRAIN[method](chosen, tmp_path / "again", str(middle))
    assert TRAIN[method](chosen, tmp_path / "over", str(end))  # cut off after its last step: only model/ is missing
    straight, again, over = (weights(tmp_path / name / "model") for name in ("straight", "again", "over"))
    assert all(torch.equal(straight[name], again[name]) for name in straight)
    assert all(torch.equal(straight[name], over[name]) for name in straight)
    average, raw = load_file(end / EMA), load_file(end / "model.safetensors")
    assert all(torch.equal(straight[name], value) for name, value in average.items())
    assert any(not torch.equal(raw[name], value) for name, value in average.items())
    with pytest.raises(ConfigError, match=r"another configuration: ema: 0.8 there, None here"):
        TRAIN[method](config(method, made, **{**MOVING, "ema": None}), tmp_path / "other", str(middle))


@pytest.mark.ci
def test_it_is_what_is_evaluated_and_kept(material: dict[str, Path], tmp_path: Path) -> None:
    out = alone(settings(tmp_path / "early", material, EARLY, batch_size=4, ema=0.5, **RISING))
    assert_the_best_is_kept(out, material)
    plain = alone(settings(tmp_path / "plain", material, EARLY, batch_size=4, **RISING))
    assert told(out)[1] != told(plain)[1]


@pytest.mark.nightly
def test_sharded_it_is_evaluated_kept_and_resumed(material: dict[str, Path], tmp_path: Path) -> None:
    import torch

    out = run(TORCHRUN, settings(tmp_path / "early", material, EARLY, fsdp=True, ema=0.5, **RISING))
    assert_the_best_is_kept(out, material)
    place = (material["episodes"], material["model"])
    changes: dict[str, Any] = {"fsdp": True, "predictions": 0, "save_every": 2, "steps": 3, "ema": DECAY}
    straight = run(TORCHRUN, write(tmp_path / "straight", place, **changes))
    again = run(TORCHRUN, write(tmp_path / "again", place, **changes), straight / "checkpoints" / "checkpoint-2")
    single = alone(write(tmp_path / "single", place, **{**changes, "fsdp": False, "batch_size": 4}))
    first, second, third = (weights(folder / "model") for folder in (straight, again, single))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert max(float((first[name] - third[name]).abs().max()) for name in first) < 2e-3


def test_deepspeed_is_refused(made: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "zero.json").write_text("{}")
    with pytest.raises(ConfigError, match="ema: DeepSpeed keeps the weights"):
        config("sft", made, ema=0.9, deepspeed=str(tmp_path / "zero.json")).check()
