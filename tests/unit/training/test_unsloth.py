"""What `loader: unsloth` asks Unsloth for. The package needs a GPU, so a stand-in takes its place here.

The stand-in has the parameters of Unsloth 2026.10.7 (unsloth/models/loader.py and vision.py, read from its wheel), and
its defaults where they matter: an argument that it does not know, or that is left to such a default, shows.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from eval.config import ConfigError
from training.dpo.train import DpoConfig
from training.grpo.config import GrpoConfig
from training.options import LoraConfig
from training.reward.train import RewardConfig
from training.rewards import RewardSpec
from training.sft.train import SftConfig

pytestmark = pytest.mark.ml


class Asked(dict[str, dict[str, Any]]):
    """The arguments of each call by its name."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    import torch

    calls = Asked()

    class FastVisionModel:
        @staticmethod
        def from_pretrained(
            model_name: str, dtype: Any = None, load_in_4bit: bool = True, load_in_8bit: bool = False,
            full_finetuning: bool = False, use_gradient_checkpointing: Any = "unsloth", revision: str | None = None,
            use_exact_model_name: bool = False, float32_mixed_precision: bool | None = None, random_state: int = 3407,
        ) -> tuple[Any, Any]:  # fmt: skip
            calls["from_pretrained"] = dict(locals())
            return torch.nn.Linear(1, 1), None

        @staticmethod
        def get_peft_model(
            model: Any, r: int = 16, target_modules: Any = None, lora_alpha: int = 16, lora_dropout: float = 0.0,
            bias: str = "none", finetune_vision_layers: bool = True, finetune_language_layers: bool = True,
            finetune_attention_modules: bool = True, finetune_mlp_modules: bool = True,
            use_gradient_checkpointing: Any = "unsloth", random_state: int = 3407, use_rslora: bool = False,
        ) -> Any:  # fmt: skip
            if target_modules == "all-linear":
                finetune_vision_layers = True
            calls["get_peft_model"] = dict(locals())
            return model

        @staticmethod
        def for_training(model: Any, use_gradient_checkpointing: Any = None) -> None:
            calls["for_training"] = dict(locals())

    module = ModuleType("unsloth")
    module.FastVisionModel = FastVisionModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "unsloth", module)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return calls


def load(**changes: Any) -> None:
    from training.common.model.unsloth import load as load_with_unsloth

    load_with_unsloth(SftConfig(model=".", episodes=".", steps=1, loader="unsloth", **changes), "owner/name", "abc123")


def test_the_model_is_the_one_named_at_its_revision(asked: Asked) -> None:
    load()
    given = asked["from_pretrained"]
    assert (given["model_name"], given["revision"], given["use_exact_model_name"]) == ("owner/name", "abc123", True)
    assert (given["full_finetuning"], given["load_in_4bit"], given["float32_mixed_precision"]) == (True, False, True)


@pytest.mark.parametrize(("ours", "theirs"), [(False, False), (True, "unsloth")])
def test_checkpointing_is_what_the_configuration_says_in_every_call(asked: Asked, ours: bool, theirs: Any) -> None:
    load(lora=LoraConfig(), activation_checkpointing=ours)
    assert asked["from_pretrained"]["use_gradient_checkpointing"] == theirs
    assert asked["get_peft_model"]["use_gradient_checkpointing"] == theirs
    assert asked["for_training"]["use_gradient_checkpointing"] is ours


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "qkv"]])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_frozen_tower_gets_no_lora(asked: Asked, targets: Any, frozen: bool) -> None:
    load(lora=LoraConfig(targets=targets), freeze_vision=frozen)
    assert asked["get_peft_model"]["finetune_vision_layers"] is not frozen


def test_a_regular_expression_that_unsloth_would_not_keep_off_the_tower_is_refused() -> None:
    config = SftConfig(
        model=".", episodes=".", steps=1, loader="unsloth", freeze_vision=True, lora=LoraConfig(targets=".*q_proj")
    )
    with pytest.raises(ConfigError, match="name layers in a list"):
        config.check()


@pytest.mark.parametrize(
    "config",
    [
        DpoConfig(model=".", pairs=".", steps=1, loader="unsloth"),
        RewardConfig(model=".", pairs=".", steps=1, loader="unsloth"),
        GrpoConfig(model=".", data=".", rewards=[RewardSpec(name="format")], steps=1, loader="unsloth"),
    ],
    ids=lambda config: type(config).__name__,
)
def test_trainers_that_unsloth_was_not_tried_with_refuse_it(config: Any) -> None:
    with pytest.raises(ConfigError, match=r"loader: unsloth is for training\.sft only"):
        config.check()


def test_a_frozen_tower_includes_the_projector() -> None:
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    from tests.bench.memory import Case
    from training.common.model.loading import freeze_vision

    settings = Case(layers=1, depth=1).config()
    with torch.device("meta"):
        made = AutoModelForImageTextToText.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
    freeze_vision(made)
    projector = [name for name, _ in made.named_parameters() if "merger" in name]
    assert projector
    trained = {name for name, parameter in made.named_parameters() if parameter.requires_grad}
    assert not trained & set(projector)
    assert any("language_model" in name for name in trained)
