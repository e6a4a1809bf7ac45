"""`learning_rates`: parts of the model with rates of their own, in every trainer.

The reference is torch's AdamW with parameter groups that the test makes by hand, on the same batches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError
from tests.integration.training import preference
from tests.integration.training.test_precision import TRAIN, config, made
from tests.integration.training.test_two_processes import TORCHRUN, run, weights, write
from training.common.rates import groups_of, rates_by_name
from training.data.faults import Faults
from training.options import LoraConfig
from training.sft import train as sft

__all__ = ["made"]
pytestmark = [
    pytest.mark.ml,
    # TRL asks peft's model by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
USUAL = 1e-3
RATES = {"vision": 1e-4, "projector": 3e-4, r".*embed_tokens.*": 5e-5}


def rate_by_hand(name: str) -> float:
    if "visual" in name:
        return 3e-4 if "merger" in name else 1e-4
    return 5e-5 if "embed_tokens" in name else USUAL


def trainer_of(chosen: Any, out: Path) -> Any:
    return sft.make_trainer(chosen, sft.open_data(chosen, chosen.prompt.builder(), Faults()), out)


def test_five_steps_are_those_of_an_optimiser_built_by_hand(made: dict[str, Path], tmp_path: Path) -> None:
    import torch

    from training.common.entry import run_training

    changes: dict[str, Any] = {
        "steps": 5, "learning_rate": USUAL, "schedule": "linear", "warmup_steps": 2, "max_grad_norm": 0.0,
    }  # fmt: skip
    chosen = config("sft", made, learning_rates=RATES, **changes)
    ours = trainer_of(chosen, tmp_path / "ours")
    batches: list[tuple[dict[str, Any], Any]] = []
    compute = ours.compute_loss

    def seen(model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None, **more: Any) -> Any:
        batches.append((dict(inputs), num_items_in_batch))
        return compute(model, inputs, num_items_in_batch=num_items_in_batch, **more)

    ours.compute_loss = seen
    assert run_training(ours, chosen, tmp_path / "ours", None)
    assert len(batches) == 5
    theirs = trainer_of(config("sft", made, **changes), tmp_path / "theirs")  # gives the loss, and nothing else
    model = theirs.model.train()
    groups = [{"params": [weight], "lr": rate_by_hand(name)} for name, weight in model.named_parameters()]
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    for share, (batch, items) in zip((0.0, 0.5, 1.0, 2 / 3, 1 / 3), batches, strict=True):
        for group, (name, _) in zip(optimiser.param_groups, model.named_parameters(), strict=True):
            group["lr"] = share * rate_by_hand(name)
        theirs.compute_loss(model, batch, num_items_in_batch=items).backward()
        optimiser.step()
        optimiser.zero_grad()
    after = dict(model.named_parameters())
    for name, weight in ours.model.named_parameters():
        assert float((weight - after[name]).detach().abs().max()) < 1e-7, name


@pytest.mark.nightly
@pytest.mark.parametrize("method", TRAIN)
def test_every_trainer_has_the_groups_and_a_resume_keeps_them(
    method: str, made: dict[str, Path], tmp_path: Path
) -> None:
    import torch

    part = "head" if method == "reward" else "projector"
    rates = {"vision": 1e-4, part: 3e-4}
    chosen = config(method, made, learning_rates=rates, learning_rate=USUAL, steps=2, save_every=1)
    assert TRAIN[method](chosen, tmp_path / "out", None)
    first = tmp_path / "out" / "checkpoints" / "checkpoint-1"
    assert TRAIN[method](chosen, tmp_path / "again", str(first))
    states = [torch.load(folder / "optimizer.pt") for folder in (first, tmp_path / "again/checkpoints/checkpoint-2")]
    for state in states:
        assert {group["initial_lr"] for group in state["param_groups"]} == {USUAL, 1e-4, 3e-4}
        assert state["param_groups"][0]["initial_lr"] == USUAL  # the rate that is logged
    assert [len(group["params"]) for group in states[0]["param_groups"]] == [
        len(group["params"]) for group in states[1]["param_groups"]
    ]
    with pytest.raises(ConfigError, match=r"another configuration: learning_rates: .*'vision': 0.0001"):
        TRAIN[method](config(method, made, learning_rate=USUAL, steps=2, save_every=1), tmp_path / "other", str(first))


def test_what_matches_nothing_is_refused_with_what_there_is(made: dict[str, Path], tmp_path: Path) -> None:
    from training.common.entry import run_training

    chosen = config("sft", made, learning_rates={"layers.99": 1e-4})
    with pytest.raises(ConfigError, match=r"learning_rates.layers.99: no trained weight .* language \(\d+: .*; vision"):
        run_training(trainer_of(chosen, tmp_path), chosen, tmp_path, None)


def test_groups_of_a_lora() -> None:
    tower = "base_model.model.model.visual.blocks.0.attn.qkv.lora_A.default.weight"
    assert groups_of(tower) == {"vision", "lora"}
    assert groups_of("model.visual.deepstack_merger_list.0.linear_fc1.weight") == {"projector"}
    assert groups_of("score.modules_to_save.default.weight") == {"head"}
    assert groups_of("model.language_model.layers.0.mlp.up_proj.weight") == {"language"}
    names = [tower, "model.language_model.layers.0.mlp.up_proj.lora_B.default.weight"]
    assert rates_by_name({"lora": 1e-4, ".*visual.*": 1e-5}, names) == {names[0]: 1e-5, names[1]: 1e-4}
    with pytest.raises(ConfigError, match="lora and vision both match"):
        rates_by_name({"lora": 1e-4, "vision": 1e-5}, names)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learning_rates": {"vision": 1e-5}, "freeze_vision": True}, "learning_rates.vision: freeze_vision"),
        ({"learning_rates": {"lora": 1e-5}}, "learning_rates.lora: there is none"),
        ({"learning_rates": {"(": 1e-5}}, "is no regular expression: .* parts are vision, projector"),
    ],
)
def test_what_fits_no_model_is_refused_before_one_is_loaded(
    made: dict[str, Path], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        config("sft", made, **changes).check()
    config("sft", made, learning_rates={"lora": 1e-5}, lora=LoraConfig()).check()


@pytest.mark.nightly
def test_sharded_the_parts_have_their_rates(made: dict[str, Path], tmp_path: Path) -> None:
    import torch

    changes: dict[str, Any] = {"learning_rates": {"vision": 1e-12}, "steps": 3, "save_every": 2, "predictions": 0}
    place = (made["episodes"], made["model"])
    out = run(TORCHRUN, write(tmp_path / "two", place, fsdp=True, prompt=preference.PROMPT, **changes))
    run(
        TORCHRUN, write(tmp_path / "again", place, fsdp=True, prompt=preference.PROMPT, **changes),
        out / "checkpoints" / "checkpoint-2",
    )  # fmt: skip
    before, after, again = (weights(path) for path in (made["model"], out / "model", tmp_path / "again" / "model"))
    for name, value in before.items():
        still = "visual" in name and "merger" not in name
        moved = float((value - after[name]).abs().max())
        assert not still or moved < 1e-9, name
        if "down_proj" in name or "visual.merger.linear_fc2" in name:
            assert moved > 1e-4, name
        assert torch.equal(after[name], again[name]), name
