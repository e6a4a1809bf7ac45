"""The divergence from a reference: against TRL's own loss with the same beta, and in the critic's targets."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec import structs
from torch import Tensor
from trl import GRPOTrainer

from eval.config import ConfigError
from tests.unit.rl.drawn_generations import (
    BareTrainer,
    config_of,
    draw_groups,
    records_of,
    rows_of,
)
from tests.unit.rl.oracle import Rules
from training.rl.learning.credit import credited
from training.rl.learning.critic import token_credit
from training.rl.learning.kl import PostKl, ReferenceModel, divergence
from training.rl.learning.loss_rows import LossRow, tensors
from training.rl.learning.turn_records import TurnRecord
from training.rl.sections import CriticConfig, KlConfig

pytestmark = pytest.mark.ml


def by_trl(ours: BareTrainer, records: list[TurnRecord], rules: Rules) -> tuple[float, Tensor, float]:
    """(loss, gradient of the table of logits, its figure `kl`) of TRL's GRPOTrainer._compute_loss on the same rows."""
    made = tensors(records, None, -1, "cpu")  # type: ignore[arg-type]
    told: Any = {"train": defaultdict(list)}
    trainer: Any = SimpleNamespace(
        **{"beta": rules.beta, "loss_type": "dr_grpo" if rules.average == "constant" else rules.loss},
        **{"epsilon_low": rules.low, "epsilon_high": rules.high, "top_entropy_quantile": 1.0},
        **{"importance_sampling_level": "sequence" if rules.sequence else "token", "off_policy_mask_threshold": None},
        **{"aux_loss_enabled": False, "use_vllm": False, "_entropy_bonus_enabled": False, "_metrics": told},
        **{"model": SimpleNamespace(training=True), "current_gradient_accumulation_steps": 1},
        max_completion_length=rules.longest,
        args=SimpleNamespace(
            use_bias_correction_kl=False,
            delta=None,
            steps_per_generation=1,
            sapo_temperature_pos=rules.heat[0],
            sapo_temperature_neg=rules.heat[1],
        ),
        accelerator=SimpleNamespace(num_processes=1, reduce=lambda told, reduction: told, gather=lambda told: told),
        _get_per_token_logps_and_entropies=lambda model, *_, **__: (*ours.likely(model, made), None),
    )
    gains = torch.zeros_like(made["old"])
    for number, row in enumerate(records):
        gains[number, : row.tokens] = torch.tensor(row.gains)
    given = {name: made[name] for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")}
    ours.table.grad = None
    loss = GRPOTrainer._compute_loss(
        trainer,
        None,
        {
            **given,
            "advantages": gains,
            "old_per_token_logps": made["old"],
            "ref_per_token_logps": made["reference"],
            "num_items_in_batch": made["completion_mask"].sum(),
        },
    )
    loss.backward()
    assert ours.table.grad is not None
    return float(loss.detach()), ours.table.grad.clone(), told["train"]["kl"][0]


@pytest.mark.parametrize("loss", ["dapo", "cispo", "grpo", "sapo", "dr_grpo"])
def test_value_and_gradient_are_those_of_trls_grpo_with_the_same_beta(loss: str) -> None:
    for number in range(20):
        draw = random.Random(f"{loss} {number}")
        rules = Rules(
            loss="dapo" if loss == "dr_grpo" else loss,
            average="constant" if loss == "dr_grpo" else "tokens",
            deviation=loss != "dr_grpo",
            sequence=draw.random() < 0.3,
            high=5.0 if loss == "cispo" else 0.28,
            longest=20,
            beta=draw.choice([0.04, 0.5]),
        )
        groups = [[rollout for rollout in group if rollout.valid] for group in draw_groups(draw)]
        if loss == "dr_grpo":  # a row of TRL is an answer, and here a turn of a rollout
            for group in groups:
                for rollout in group:
                    rollout.turns = rollout.turns[:1]
        config = config_of(rules, batch_size=64)
        rows = rows_of(groups, rules, config)
        trainer = BareTrainer(groups, rules, config)
        mine, gradient = trainer.step(rows, 0)
        theirs, wanted, figure = by_trl(trainer, credited(records_of(groups), config), rules)
        assert mine == pytest.approx(theirs, abs=1e-6)
        assert torch.allclose(gradient, wanted, rtol=0, atol=1e-6)
        tokens, apart = trainer.told[0][0], trainer.told[0][-1]
        assert apart / tokens == pytest.approx(figure, abs=1e-6)


def test_k1_is_the_difference_and_k3_never_below_zero() -> None:
    now, reference = torch.tensor([-1.0, -2.0, -0.5]), torch.tensor([-1.5, -1.0, -0.5])
    assert divergence(now, reference, "k1").tolist() == [0.5, -1.0, 0.0]
    assert divergence(now, reference, "k3").tolist() == pytest.approx([0.106531, 0.718282, 0.0], abs=1e-6)


def test_in_the_reward_it_is_taken_off_at_each_token_that_a_critic_learns_from() -> None:
    """lambda 1, so a target is the return that is still to come: .25 less .1 (d of this token and of those after)."""
    groups = draw_groups(random.Random(1))
    groups = [[replace(groups[0][0], reward=0.25, valid=True), replace(groups[0][1], valid=True)]]
    records = records_of(groups)
    kl = KlConfig(coefficient=0.1, estimator="k1", place="reward")
    _, targets = token_credit(records, [[0.0] * len(each.turn.ids) for each in records], CriticConfig(), kl)
    tokens = [token for turn in groups[0][0].turns for token in turn.tokens]
    costs = [0.1 * (token.old - token.reference) for token in tokens]
    said = [each for record, line in zip(records, targets, strict=True) if record.at[1] == 0 for each in line]
    assert said == pytest.approx([0.25 - sum(costs[at:]) for at in range(len(costs))], abs=1e-6)


def test_without_its_lora_a_model_says_what_its_base_says() -> None:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    base = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    inputs = torch.randn(3, 4)
    wanted = base(inputs).detach()
    model = get_peft_model(base, LoraConfig(target_modules=["0"], init_lora_weights=False))  # type: ignore[arg-type]
    trainer = Holder(model)
    learns = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert not torch.equal(model(inputs), wanted)
    with ReferenceModel(trainer, None).model() as reference, torch.no_grad():
        assert torch.equal(reference(inputs), wanted)
    assert not torch.equal(model(inputs), wanted)
    assert [name for name, weight in model.named_parameters() if weight.requires_grad] == learns


class Holder:
    def __init__(self, model: Any) -> None:
        self.model = model
        self.accelerator = SimpleNamespace(unwrap_model=lambda model: model, device="cpu")


def test_a_whole_model_has_a_frozen_copy_which_is_loaded_once() -> None:
    made = []

    def make() -> torch.nn.Module:
        made.append(torch.nn.Linear(2, 2))
        return made[-1]

    trainer = Holder(torch.nn.Linear(2, 2))
    reference = ReferenceModel(trainer, make)
    for _ in range(2):
        with reference.model() as model:
            assert model is made[0]
            assert not model.training
            assert not any(weight.requires_grad for weight in model.parameters())
    assert len(made) == 1


class Measured:
    """A trainer whose rows have one turn of two tokens, of which the second is not learnt, and one of one token."""

    def __init__(self) -> None:
        turns = [SimpleNamespace(ids=(1, 2)), SimpleNamespace(ids=(3,))]
        self.rows: Any = [
            LossRow(turns[0], (0, 0, 0), "a", old=(-1.0, -9.0), learnt=(True, False)),  # type: ignore[arg-type]
            LossRow(turns[1], (0, 1, 0), "b", old=(-2.0,)),  # type: ignore[arg-type]
        ]
        self.said: list[tuple[str, float, int | None]] = []

    def measured(self, rows: Any) -> list[Tensor]:
        return [torch.tensor([-0.5, -1.0]), torch.tensor([-2.25])]

    def note(self, name: str, value: float, step: int | None = None) -> None:
        self.said.append((name, value, step))


def test_how_far_a_generations_steps_moved_the_policy() -> None:
    """d is -.5 and .25: the mean -.125, and half the mean square (.25 + .0625) / 4, as in Tinker's cookbook."""
    trainer = Measured()
    after = PostKl(trainer, 2)
    for step in (1, 2):
        after.on_step_end(None, SimpleNamespace(global_step=step), None)  # type: ignore[arg-type]
    assert trainer.said == [("post_kl_v1", -0.125, 2), ("post_kl_v2", pytest.approx(0.078125), 2)]


def test_the_reference_of_an_adapter_that_goes_on_is_refused(tmp_path: Path) -> None:
    config = structs.replace(config_of(Rules(beta=0.1)), model=str(tmp_path), adapter=str(tmp_path), steps=4)
    with pytest.raises(ConfigError, match="kl: not with adapter"):
        config.check()
