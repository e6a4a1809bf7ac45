"""What a configuration of training may say, and how it is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from tests.support.refusing import refused
from training.sft.train import main

GOOD = {"model": ".", "episodes": ".", "steps": 3}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lr": 1e-3}, "lr"),
        ({"lora": {"r": 4}}, "r"),
        ({"steps": "many"}, "steps"),
        ({"epochs": 2.0}, "either steps or epochs"),
        ({"steps": None}, "either steps or epochs"),
        ({"batch_size": 0}, "`int` >= 1 - at `$.batch_size`"),
        ({"schedule": "warm"}, "'warm' - at `$.schedule`"),
        ({"precision": "int8"}, "'int8' - at `$.precision`"),
        ({"warmup_steps": 10}, "warmup_steps: 10 of 3 steps"),
        ({"seed": -1}, "`int` >= 0 - at `$.seed`"),
        ({"seed": 2**32}, "at `$.seed`"),
        ({"weight_decay": math.inf}, "weight_decay is not a finite number"),
        ({"steps": None, "epochs": math.inf}, "at `$.epochs`"),
        ({"prompt": {"decimals": 2}, "lora": {"targets": []}}, "lora.targets: name a layer"),
        ({"optimizer": "nonsense"}, "'nonsense' - at `$.optimizer`"),
        ({"optimizer": "paged_adamw_8bit"}, "needs bitsandbytes"),
        ({"learning_rate": 1e300}, "at `$.learning_rate`"),
        ({"floor": 0.1}, "floor: schedule linear has none; allowed with cosine"),
        ({"min_pixels": 2000, "max_pixels": 1000}, "min_pixels: 2000 is more than max_pixels, 1000"),
        ({"attention": "flash_attention_2"}, "needs flash-attn"),
        ({"model": "nowhere"}, "no folder nowhere"),
        ({"model": "hf://xlangai/OpenCUA-7B"}, "evaluation only"),
        ({"episodes": "nowhere"}, "no folder nowhere"),
        ({"prompt": {"history": 3, "step_of": True}}, "step_of"),
        ({"episodes": None}, "either episodes or data"),
        ({"data": "."}, "either episodes or data"),
        ({"episodes": None, "data": [{"path": ".", "weight": 0}]}, "weight"),
        ({"lora": {}, "adapter": "."}, "either a new lora or an adapter"),
        ({"quantization": "4bit"}, "give a lora to train"),
        ({"quantization": "4bit", "lora": {}}, "pip install bitsandbytes"),
        ({"loader": "unsloth"}, "image unsloth-sft"),
        ({"deepspeed": "nowhere.json"}, "no file nowhere.json"),
        ({"deepspeed": __file__}, "pip install deepspeed"),
        ({"deepspeed": __file__, "fsdp": True}, "either deepspeed or fsdp"),
        ({"report_to": ["wandb", "tensorboard", "mlflow", "trackio"]}, "pip install wandb mlflow trackio"),
        ({"report_to": ["comet"]}, "'comet'"),
        ({"max_length": 0}, "max_length"),
        ({"on_bad_sample": "ignore"}, "'ignore'"),
        ({"evaluation": {}}, "give either environment or episodes"),
        ({"evaluation": {"environment": "click", "episodes": "."}}, "give either environment or episodes"),
        ({"evaluation": {"environment": "chess"}}, "'chess' is unknown"),
        ({"evaluation": {"environment": "click", "metric": "loss"}}, "allowed: success, score, step_accuracy"),
        ({"evaluation": {"episodes": "nowhere"}}, "no folder nowhere"),
        ({"evaluation": {"episodes": ".", "metric": "success"}}, "allowed: exact, matches, click_in_box"),
        ({"evaluation": {"environment": "click", "tasks": {"count": 4, "seed": 0}}}, "test split has the seeds"),
    ],
)
def test_a_bad_configuration_is_one_line_and_exit_code_78(
    change: dict[str, object], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(main, {**GOOD, **change}, tmp_path, capsys)


def test_without_a_place_for_the_outputs_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLIPWAY_OUTPUTS", raising=False)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(GOOD))
    assert main(["--config", str(config)]) == 78
    assert "--out" in capsys.readouterr().err
