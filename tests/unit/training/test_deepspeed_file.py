"""A DeepSpeed configuration that needs a compiler which is not here is refused before a model is loaded.

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
from training.deepspeed_file import built, check_compilers, compiled_parts
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
    file = tmp_path / "zero.json"
    file.write_text(json.dumps(settings))
    monkeypatch.setattr(options, "installed", lambda name: True)
    without_compilers(tmp_path, monkeypatch)
    config = {"model": str(tmp_path), "episodes": str(tmp_path), "steps": 3, "deepspeed": str(file)}
    said = refused(main, config, tmp_path, capsys)
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
