"""A DeepSpeed file that needs a missing compiler, or contradicts the trainer, is refused before a model is loaded.

Which part needs which compiler: DeepSpeed 0.19.8, op_builder/*.py (fused_adam, fused_lamb and fused_lion have .cu
sources, async_io takes CUDA's headers, cpu_* are CPUOpBuilders of C++ alone) and runtime/engine.py,
get_optimizer_configuration; accelerate 1.15 (prepare_deepspeed) makes an optimiser that is offloaded DeepSpeed's own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.refusing import refused
from training import options
from training.deepspeed_file import agreed_settings, built, check_compilers, compiled_parts
from training.options import TrainerConfig
from training.sft.train import main

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "configs" / "deepspeed").glob("*.json"))
CPU, NVME = {"device": "cpu"}, {"device": "nvme", "nvme_path": "/scratch"}


def adam(**params: Any) -> dict[str, Any]:
    return {"type": "AdamW", "params": {"lr": "auto", **params}}


@pytest.mark.parametrize(
    ("settings", "optimizer", "parts"),
    [
        ({"zero_optimization": {"stage": 3}}, "adamw_torch", []),
        ({}, "adamw_torch_fused", []),
        ({"optimizer": adam()}, "adamw_torch", [("fused_adam", "nvcc")]),
        ({"optimizer": adam(torch_adam=True)}, "adamw_torch", []),
        ({"optimizer": {"type": "Lamb"}}, "adamw_torch", [("fused_lamb", "nvcc")]),
        ({"optimizer": {"type": "Lion"}}, "adamw_torch", [("fused_lion", "nvcc")]),
        ({"optimizer": {"type": "Adagrad"}}, "adamw_torch", []),
        ({"zero_optimization": {"offload_optimizer": CPU}}, "adamw_torch", [("cpu_adam", "c++")]),
        ({"zero_optimization": {"offload_optimizer": CPU}}, "adagrad", [("cpu_adagrad", "c++")]),
        ({"zero_optimization": {"offload_optimizer": CPU}}, "lion_32bit", [("cpu_lion", "c++")]),
        ({"zero_optimization": {"offload_optimizer": CPU}, "zero_force_ds_cpu_optimizer": False}, "adamw_torch", []),
        ({"zero_optimization": {"offload_optimizer": CPU}, "optimizer": adam()}, "sgd", [("cpu_adam", "c++")]),
        ({"zero_optimization": {"offload_optimizer": {"device": "none"}}}, "adamw_torch", []),
        ({"zero_optimization": {"offload_param": CPU}}, "adamw_torch", []),
        ({"zero_optimization": {"offload_param": NVME}}, "adamw_torch", [("async_io", "nvcc")]),
        ({"zero_optimization": {"zero_quantized_weights": True}}, "adamw_torch", [("quantizer", "nvcc")]),
        ({"zero_optimization": {"zero_quantized_gradients": True}}, "adamw_torch", [("quantizer", "nvcc")]),
        ({"zero_optimization": {"zero_quantized_gradients": False}}, "adamw_torch", []),
        (
            {"zero_optimization": {"offload_optimizer": NVME}},
            "adamw_torch",
            [("cpu_adam", "c++"), ("async_io", "nvcc")],
        ),
    ],
)
def test_what_is_compiled_and_with_what(settings: dict[str, Any], optimizer: str, parts: list[Any]) -> None:
    assert [(part.name, part.compiler) for part in compiled_parts(settings, optimizer)] == parts


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"optimizer": adam()}, "optimizer.type: AdamW needs fused_adam, which DeepSpeed compiles with nvcc"),
        (
            {"zero_optimization": {"stage": 3, "offload_optimizer": CPU}},
            "zero_optimization.offload_optimizer.device: cpu needs cpu_adam, which DeepSpeed compiles with c++",
        ),
        ({"zero_optimization": {"stage": 3, "offload_param": NVME}}, "offload_param.device: nvme needs async_io"),
        ([1], "is no JSON object"),
    ],
)
def test_a_missing_compiler_is_one_line(
    settings: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_compilers(tmp_path, monkeypatch)
    assert_refused(settings, says, tmp_path, monkeypatch, capsys)


def assert_refused(
    settings: Any, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training with this DeepSpeed file ends with a line that names the file and `says` what is wrong."""
    file = folder / "zero.json"
    file.write_text(json.dumps(settings))
    monkeypatch.setattr(options, "installed", lambda name: True)
    config = {"model": str(folder), "episodes": str(folder), "steps": 3, "deepspeed": str(file)}
    said = refused(main, config, folder, capsys)
    assert says in said
    assert str(file) in said


def without_compilers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "empty").mkdir()
    monkeypatch.setenv("PATH", str(folder / "empty"))
    monkeypatch.setenv("CUDA_HOME", str(folder / "empty"))
    monkeypatch.delenv("CXX", raising=False)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_shipped_files_need_no_compiler(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compilers(tmp_path, monkeypatch)
    check_compilers(file, "adamw_torch")


def test_a_compiler_or_a_part_that_is_built_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compilers(tmp_path, monkeypatch)
    file = tmp_path / "zero.json"
    file.write_text(json.dumps({"optimizer": adam(), "zero_optimization": {"offload_param": NVME}}))
    nvcc = tmp_path / "empty" / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    check_compilers(file, "adamw_torch")
    nvcc.unlink()
    package = tmp_path / "site" / "deepspeed"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('not for looking')\n")
    lines = "version='0.19.8'\ninstalled_ops={'fused_adam': True, 'async_io': True, 'cpu_adam': False}\n"
    (package / "git_version_info_installed.py").write_text(lines)
    monkeypatch.syspath_prepend(str(package.parent))
    assert built() == {"fused_adam", "async_io"}
    check_compilers(file, "adamw_torch")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"optimizer": {"type": "Lion", "params": {}}}, "optimizer.type: Lion would replace optimizer: adamw_torch"),
        ({"optimizer": {"params": {"lr": 1e-3}}}, "optimizer.type: none would replace optimizer: adamw_torch"),
        ({"optimizer": adam(adam_w_mode=False)}, "optimizer.params.adam_w_mode: False: that is not AdamW"),
        ({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}, "optimizer.params.lr: 0.001 is not 1e-05"),
        ({"optimizer": adam(betas=[0.9, 0.95])}, "optimizer.params.betas: [0.9, 0.95] is not [0.9, 0.999]"),
        ({"optimizer": adam(weight_decay=0.1)}, "optimizer.params.weight_decay: 0.1 is not 0.0"),
        ({"optimizer": {"type": "AdamW", "params": 3}}, "optimizer.params is no section"),
        ({"zero_optimization": {"offload_param": "cpu"}}, "zero_optimization.offload_param is no section"),
        ({"scheduler": {"type": "WarmupLR"}}, "scheduler: leave it out"),
        ({"gradient_clipping": 0.5}, "gradient_clipping: 0.5 is not 1.0 (max_grad_norm of the trainer's"),
        ({"train_micro_batch_size_per_gpu": 4}, "train_micro_batch_size_per_gpu: 4 is not 16 (batch_size of"),
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps: 2 is not 1"),
        ({"train_batch_size": 16}, "train_batch_size: 16 is not 32"),
        ({"bf16": {"enabled": True}}, "bf16.enabled: True is not False"),
        ({"fp16": {"enabled": True}}, "fp16.enabled: True is not False"),
        ({"fp16": True}, "fp16 is no section"),
    ],
)
def test_what_the_trainers_configuration_says_otherwise_is_refused(
    settings: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("training.deepspeed_file.has_compiler", lambda name: True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert_refused(settings, says, tmp_path, monkeypatch, capsys)


def test_what_a_file_leaves_out_is_the_trainers_too(tmp_path: Path) -> None:
    """DeepSpeed's own default is no clipping, and a learning rate of .001."""
    file = tmp_path / "zero.json"
    file.write_text(json.dumps({"optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2}, "bf16": {}}))
    config = TrainerConfig(model="m", steps=3, precision="bf16")
    auto = {"enabled": "auto"}
    assert agreed_settings(file, config, 1) == {
        "optimizer": {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")},
        "zero_optimization": {"stage": 2},
        "bf16": auto,
        "fp16": auto,
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto",
        "gradient_clipping": "auto",
    }


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_shipped_files_leave_everything_to_the_trainer(file: Path) -> None:
    assert agreed_settings(file, TrainerConfig(model="m", steps=3), 8) == json.loads(file.read_text())
