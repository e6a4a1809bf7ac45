"""The filters of the sampling at the gate, and the reference of a KL penalty, with a real model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.rl.conftest import rl_config
from training.options import LoraConfig
from training.rl.learning.gate import gap
from training.rl.learning.turn_records import turns_of
from training.rl.sections import KlConfig
from training.rl.train import make_trainer, train

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
LORA = LoraConfig(rank=4)


@pytest.mark.parametrize(
    "filters",
    [
        {"top_p": 0.8},
        {"top_k": 3, "temperature": 0.7},
        {"min_p": 0.2, "repetition_penalty": 1.4},
        {"repetition_penalty": 0.7},
    ],
    ids=["top_p", "top_k", "min_p", "penalty"],
)
def test_the_loss_computes_with_the_filtered_distribution(start: Path, tmp_path: Path, filters: dict[str, Any]) -> None:
    made = make_trainer(rl_config(start, **filters), tmp_path)
    try:
        rows = turns_of(made.roll_out(0))
        assert len({len(row.turn.prompt_ids) for row in rows}) > 1  # so that there is padding
        filtered, _ = made.log_probabilities(rows)
        made.filters = None
        whole, _ = made.log_probabilities(rows)
    finally:
        made.close()
    gaps = [gap(row.where, row.turn.logprobs, line.tolist()) for row, line in zip(rows, filtered, strict=True)]
    assert max(each.most for each in gaps) < 1e-4
    other = [gap(row.where, row.turn.logprobs, line.tolist()) for row, line in zip(rows, whole, strict=True)]
    assert max(each.most for each in other) > 1e-2


def test_the_reference_of_a_lora_is_its_base(start: Path, tmp_path: Path) -> None:
    """Whatever the LoRA has learnt, without it the log probabilities are those of the model of the start."""
    plain = make_trainer(rl_config(start), tmp_path / "plain")
    with_lora = make_trainer(rl_config(start, lora=LORA, kl=KlConfig(coefficient=0.1)), tmp_path / "lora")
    try:
        rows = turns_of(plain.roll_out(0))
        wanted, _ = plain.log_probabilities(rows)
        with torch.no_grad():
            for name, weight in with_lora.model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.1)
        learnt, _ = with_lora.log_probabilities(rows)
        found = with_lora.by_reference(rows)
        again, _ = with_lora.log_probabilities(rows)
    finally:
        plain.close()
        with_lora.close()
    assert max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True)) == 0.0
    assert max(float((a - b).abs().max()) for a, b in zip(learnt, wanted, strict=True)) > 1e-3
    assert all(torch.equal(a, b) for a, b in zip(learnt, again, strict=True))


def test_the_reference_of_a_whole_model_stays_what_the_model_was(start: Path, tmp_path: Path) -> None:
    made = make_trainer(rl_config(start, kl=KlConfig(coefficient=0.1)), tmp_path)
    try:
        rows = turns_of(made.roll_out(0))
        wanted, _ = made.log_probabilities(rows)
        before = made.by_reference(rows)
        with torch.no_grad():
            for weight in made.model.parameters():
                weight.add_(0.01)
        learnt, _ = made.log_probabilities(rows)
        after = made.by_reference(rows)
    finally:
        made.close()
    assert max(float((a - b).abs().max()) for a, b in zip(before, wanted, strict=True)) == 0.0
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert max(float((a - b).abs().max()) for a, b in zip(learnt, wanted, strict=True)) > 1e-3


@pytest.mark.parametrize("place", ["loss", "reward"])
def test_a_training_stays_nearer_to_its_start(start: Path, tmp_path: Path, place: Any) -> None:
    """The figures are in the log; a penalty that is large keeps the policy where it was."""
    found = {}
    for name, coefficient in (("free", 1e-6), ("held", 10.0)):
        kl = KlConfig(coefficient=coefficient, place=place, estimator="k3" if place == "loss" else "k1")
        out = tmp_path / name
        assert train(rl_config(start, kl=kl, post_kl=True, steps_per_generation=2, save_every=2), out, None)
        state = json.loads((out / "checkpoints" / "checkpoint-4" / "trainer_state.json").read_text())
        told: dict[str, float] = {}
        for line in state["log_history"]:
            told |= line
        assert {"kl", "post_kl_v1", "post_kl_v2"} <= told.keys()
        assert told["post_kl_v2"] > 0
        found[name] = told["kl"]
    if place == "loss":
        assert 0 <= found["held"] < found["free"]
