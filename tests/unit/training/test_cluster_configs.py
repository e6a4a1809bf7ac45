"""The configurations for several GPUs are what accelerate and transformers take, though no GPU is here to run them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from training.options import TrainerConfig, training_arguments

pytestmark = pytest.mark.ml
FOLDER = Path(__file__).parents[3] / "examples" / "configs"
ZERO = sorted((FOLDER / "deepspeed").glob("*.json"))
ACCELERATE = sorted((FOLDER / "accelerate").glob("*.yaml"))


def test_there_are_some() -> None:
    assert {file.stem for file in ZERO} == {"zero2", "zero3"}
    assert {file.stem for file in ACCELERATE} == {"dp", "fsdp"}


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A file that leaves out all that it may."""
    file = tmp_path / "bare2.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW"}}))
    return file


@pytest.mark.parametrize("precision", ["bf16", "float32"])
@pytest.mark.parametrize("file", [*ZERO, "bare"], ids=lambda file: Path(file).stem)
def test_transformers_fills_in_what_is_auto(file: Any, bare: Path, precision: Any, tmp_path: Path) -> None:
    """transformers' own filling in, all but its look whether deepspeed is installed."""
    from accelerate.utils.deepspeed import HfDeepSpeedConfig
    from transformers import Qwen3VLConfig, TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    file = bare if file == "bare" else file
    config = TrainerConfig(model=".", steps=10, accumulate=4, batch_size=2, precision=precision, deepspeed=str(file))
    given = training_arguments(config, tmp_path)
    settings = given.pop("deepspeed")
    arguments = TrainingArguments(**given)

    class Filled(HfTrainerDeepSpeedConfig, HfDeepSpeedConfig):  # type: ignore[misc]
        """What the first is where deepspeed is installed."""

        def __init__(self) -> None:
            HfDeepSpeedConfig.__init__(self, settings)
            self.mismatches: list[str] = []

    made = Filled()
    made.trainer_config_process(arguments)

    class Model:
        config = Qwen3VLConfig()

    made.trainer_config_finalize(arguments, Model(), 10)  # raises for what contradicts the arguments
    filled = made.config
    assert '"auto"' not in json.dumps(filled)
    assert filled["zero_optimization"]["stage"] == int(file.stem[-1])
    assert (filled["train_micro_batch_size_per_gpu"], filled["gradient_accumulation_steps"]) == (2, 4)
    assert filled["bf16"]["enabled"] == (precision == "bf16")
    assert filled["gradient_clipping"] == config.max_grad_norm  # left out, DeepSpeed would clip nothing
    if file == bare:
        wanted = {"lr": config.learning_rate, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
        assert filled["optimizer"]["params"] == wanted


@pytest.mark.parametrize("file", ACCELERATE, ids=lambda file: file.stem)
def test_accelerate_reads_it(file: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(file))
    assert config.num_processes >= 2
    for name in config.fsdp_config.get("fsdp_transformer_layer_cls_to_wrap", "").split(","):
        models = importlib.import_module("transformers.models.qwen3_vl.modeling_qwen3_vl")
        assert not name or hasattr(models, name)
