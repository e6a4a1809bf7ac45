"""The parts of the images' smoke programs that only a GPU runs: their configurations are what the trainers take."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import pytest

from eval.config import convert
from tests.support.documented import ROOT
from training.grpo.config import GrpoConfig
from training.sft.train import SftConfig

COMMON: dict[str, Any] = {"model": "m", "steps": 1, "batch_size": 4}


def smoke(image: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "images"))
    spec = importlib.util.spec_from_file_location(f"smoke_of_{image}", ROOT / "images" / image / "smoke.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_unsloths_step(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**COMMON, "episodes": "e", **smoke("unsloth-sft", monkeypatch).ON_A_GPU}
    assert convert(config, SftConfig, "smoke").loader == "unsloth"


def test_a_step_with_vllm_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"data": "d", "rewards": [{"name": "format"}], "num_generations": 2, "max_completion": 8, "save_every": 1}
    config = {**COMMON, **more, **smoke("trl-grpo", monkeypatch).ON_A_GPU}
    assert convert(config, GrpoConfig, "smoke").generation.backend == "vllm"
