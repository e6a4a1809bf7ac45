"""What the plan counts, and what the configuration says, is what a trainer has in memory before its first step.

bitsandbytes needs a GPU: which layers it would take is decided by transformers' own matcher, and what peft makes of the
others by peft's own function. Only the quantised numbers themselves are stand-ins, of its classes' name and size.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.config import ConfigError
from tests.integration.training import preference
from tests.integration.training.test_precision import config as config_of
from tests.support.cases import every_case
from tests.support.made_once import made_once
from training.common.model import adapter as adapters
from training.common.model import loading
from training.common.model.parts import QUANTISED, check_parts, part_of
from training.common.model.sharding import float32_masters
from training.data.faults import Faults
from training.memory.architecture import PUBLISHED
from training.memory.estimate import BITS4, BITS8
from training.memory.workload import Shape, describe
from training.options import LoraConfig

pytestmark = [
    pytest.mark.ml,
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
LORA = LoraConfig(rank=4, alpha=8)
SIZES = {"4bit": BITS4, "8bit": BITS8}


@pytest.fixture(scope="module")
def made() -> dict[str, Path]:
    """episodes, pairs, model: with a head of its own, as models of 8B have it."""
    material = preference.material()
    model = made_once("parts-untied", untied, material / "model")
    return {"episodes": material / "episodes", "pairs": material / "pairs", "model": model}


def untied(folder: Path, model: Path) -> None:
    from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

    about = AutoConfig.from_pretrained(model)
    about.tie_word_embeddings = about.get_text_config().tie_word_embeddings = False
    AutoModelForImageTextToText.from_config(about).save_pretrained(folder)
    AutoProcessor.from_pretrained(model).save_pretrained(folder)


@every_case("name", [*PUBLISHED, "flat"])
def test_transformers_leaves_the_tower_and_the_head_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the function with which transformers chooses what it quantises."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText
    from transformers.quantizers.quantizers_utils import should_convert_module

    from training.common.model.loading import unquantised

    data = PUBLISHED["Qwen/Qwen3-VL-2B" if name == "flat" else name]
    folder = tmp_path / name.replace("/", "-")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(data))
    whole = unquantised(str(folder), {"local_files_only": True})
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder))
    taken = {part: [0, 0] for part in ("text", "vision", "head")}
    for layer, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            taken[part_of(layer)][should_convert_module(layer, whole)] += 1
    assert taken["text"][0] == 0
    assert taken["text"][1] > 100
    assert taken["vision"][1] == taken["head"][1] == 0
    assert taken["vision"][0] > 90


def stand_in(size: str) -> type:
    """bitsandbytes' class of weights by its name, with as many numbers as it has."""
    import torch

    return type("Params4bit" if size == "4bit" else "Int8Params", (torch.nn.Parameter,), {})


@pytest.fixture
def quantising(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is quantised without a GPU: each layer that transformers would take gets stand-ins."""
    import torch
    from transformers.quantizers.quantizers_utils import should_convert_module

    inner = loading.start_model

    def start(config: Any) -> Any:
        model = inner(msgspec.structs.replace(config, quantization=None))
        if config.quantization is None:
            return model
        whole = loading.unquantised(config.model, {"local_files_only": True})
        for name, layer in model.named_modules():
            if isinstance(layer, torch.nn.Linear) and should_convert_module(name, whole):
                kind = stand_in(config.quantization)
                numbers = torch.zeros(layer.weight.shape, dtype=torch.int8)
                layer.weight = kind(numbers, requires_grad=False)  # a byte each: their number counts
        model.is_loaded_in_4bit = config.quantization == "4bit"
        model.is_loaded_in_8bit = config.quantization == "8bit"
        return model

    monkeypatch.setattr(loading, "start_model", start)


def trainer_of(method: str, config: Any, out: Path) -> Any:
    from training.data.pairs.store import read_pairs
    from training.data.source import open_source
    from training.dpo import train as dpo
    from training.grpo import train as grpo
    from training.grpo.prompts import Prompts
    from training.reward import train as reward
    from training.rewards import load
    from training.sft import train as sft

    match method:
        case "sft":
            return sft.make_trainer(config, sft.open_data(config, config.prompt.builder(), Faults("fail")), out)
        case "grpo":
            rewards = load(config.rewards)
            samples = open_source(config.data, config.prompt.builder(), Faults("fail"))
            return grpo.make_trainer(config, rewards, Prompts(samples, rewards, Faults("fail")), out)
        case _:
            pairs = read_pairs(Path(config.pairs), "train")
            return (dpo if method == "dpo" else reward).make_trainer(config, pairs, out)


def held(model: Any, quantization: str | None) -> dict[str, float]:
    """Bytes of a model's own weights by part, and of what was added."""
    found: dict[str, float] = defaultdict(float)
    for name, weight in model.named_parameters():
        part = "LoRA" if ".lora_" in name else part_of(name)
        if part == "text" and "embed_tokens" in name:
            part = "embeddings"
        if ".original_module" in name:
            continue  # a copy of the few weights of a reward model's head
        small = type(weight).__name__ in QUANTISED
        found[part] += weight.numel() * (SIZES[quantization or ""] if small else weight.dtype.itemsize)
    return found


COMBINATIONS = [
    *((method, "bf16", lora, None) for method in ("sft", "dpo", "grpo", "reward") for lora in (None, LORA)),
    *((method, "bf16", LORA, bits) for method in ("sft", "dpo", "grpo") for bits in ("4bit", "8bit")),
    ("sft", "float32", None, None),
    ("sft", "float32", LORA, "4bit"),
]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("method", "precision", "lora", "quantization"),
    COMBINATIONS,
    ids=lambda value: "lora" if isinstance(value, LoraConfig) else str(value),
)
def test_the_plan_has_the_bytes_of_what_is_loaded(
    method: str, precision: str, lora: LoraConfig | None, quantization: Any, made: dict[str, Path], tmp_path: Path,
    quantising: None,
) -> None:  # fmt: skip
    changes: dict[str, Any] = {"precision": precision, "lora": lora, "quantization": quantization}
    if method == "grpo":
        changes["beta"] = 0.1  # a reference model, where there is no LoRA
    config = config_of(method, made, **changes)
    trainer = trainer_of(method, config, tmp_path)
    float32_masters(trainer.model, config)
    told = check_parts(trainer.model, config)
    assert f"text 7 linear layers ({7 if quantization else 0} quantised, {7 if lora else 0} with an adapter)" in told
    planned = describe(config, method, Shape(), 1).estimate.components
    found = held(trainer.model, quantization)
    for part in ("text", "vision", "embeddings", "head", "LoRA"):
        assert planned.get(f"weights: {part}", 0.0) == pytest.approx(found.get(part, 0.0), rel=1e-6), part
    reference = getattr(trainer, "ref_model", None)
    copies = 0.0 if reference is None else sum(held(reference, None).values())
    assert planned.get("weights: reference", 0.0) == pytest.approx(copies, rel=1e-6)


def test_a_reward_model_is_counted_as_it_is_loaded(made: dict[str, Path], tmp_path: Path) -> None:
    """Its file may be bfloat16; in memory it is float32."""
    import torch
    from safetensors.torch import save_file

    from training.rewards import RewardSpec

    save_file({"a": torch.zeros(300, 7, dtype=torch.bfloat16), "b": torch.zeros(5)}, tmp_path / "model.safetensors")
    judge = RewardSpec(name="reward_model", args={"path": str(tmp_path)})
    config = msgspec.structs.replace(config_of("grpo", made), rewards=[judge])
    plan = describe(config, "grpo", Shape(), 1).estimate.components
    assert plan["weights: other models"] == 4 * (300 * 7 + 5)


def test_a_model_that_is_not_as_the_configuration_says_is_refused(
    made: dict[str, Path], quantising: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from peft import get_peft_model

    def loaded(**changes: Any) -> tuple[Any, Any]:
        config = config_of("sft", made, **changes)
        model, _ = loading.load_model(config)
        new = adapters.lora(config, model)
        model = model if new is None else get_peft_model(model, new)
        float32_masters(model, config)
        check_parts(model, config)
        return model, config

    model, config = loaded(lora=LORA, quantization="4bit", precision="bf16")
    block = model.get_base_model().model.visual.blocks[0].attn.proj.base_layer
    block.weight = stand_in("4bit")(torch.zeros(block.weight.shape, dtype=torch.int8), requires_grad=False)
    with pytest.raises(ConfigError, match=r"quantization: 4bit: 1 of \d+ linear layers of the vision are quantised"):
        check_parts(model, config)

    model, config = loaded(lora=LORA, freeze_vision=True)
    model.get_base_model().model.visual.blocks[0].attn.proj.weight.requires_grad_(True)
    with pytest.raises(ConfigError, match="freeze_vision: 1 weights of the vision tower are trained all the same"):
        check_parts(model, config)

    model, config = loaded(lora=LORA)
    model.get_base_model().model.language_model.norm.weight.requires_grad_(True)
    with pytest.raises(ConfigError, match="lora: 1 of the model's own weights are trained all the same"):
        check_parts(model, config)

    model, config = loaded()
    model.model.language_model.norm.weight.requires_grad_(False)
    with pytest.raises(ConfigError, match="all weights are to be trained, and 1 of text, vision are not"):
        check_parts(model, config)

    model, config = loaded()
    model.model.language_model.norm.weight.data = model.model.language_model.norm.weight.data.bfloat16()
    with pytest.raises(ConfigError, match="precision: 1 trained weights are not in float32"):
        check_parts(model, config)
    model, config = loaded(lora=LORA)
    monkeypatch.setattr(model.get_base_model().model.language_model.layers[0].mlp, "down_proj", torch.nn.Linear(2, 2))
    model.get_base_model().model.language_model.layers[0].mlp.down_proj.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"all-linear: \d+ of \d+ linear layers of the text have one"):
        check_parts(model, config)
