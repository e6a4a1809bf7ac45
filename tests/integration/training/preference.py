"""Pairs and a model that are small enough for a few steps of training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import yaml

from eval.prompts import PromptConfig
from tests.support.made_once import made_once
from tests.unit.training.material import episodes, model
from training.data.pairs.run import PairsConfig
from training.data.pairs.run import make as make_pairs
from training.data.pairs.synthetic import SyntheticSource
from training.options import TrainerConfig

PROMPT = PromptConfig(decimals=2, system="", history=2, images=2)  # prompts of different lengths, with one image or two
WAYS: Any = ["element", "perturbed", "type", "text", "malformed"]


def material() -> Path:
    """A folder with `episodes`, `pairs` of them with a test split, and a tiny `model`; not to be written in."""
    return made_once("preference", _fill)


def _fill(root: Path) -> None:
    seen = episodes(root, 6, PROMPT)
    source = SyntheticSource(episodes=[str(seen)], per_step=2, ways=WAYS)
    make_pairs(PairsConfig(sources=[source], prompt=PROMPT, test_share=0.35), root / "pairs")
    model(root / "model", seen, PROMPT)


def pairs_and_model() -> tuple[Path, Path]:
    return material() / "pairs", material() / "model"


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


def same(a: Path, b: Path) -> bool:
    import torch

    first, second = weights(a), weights(b)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def difference(a: Path, b: Path) -> float:
    """The largest difference of a weight."""
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def run_cut_off(module: str, config: TrainerConfig, folder: Path) -> Path:
    """Runs a trainer, sends SIGTERM after its first step; gives the checkpoint that it left."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    file, out, progress = folder / "config.yaml", folder / "out", folder / "progress.jsonl"
    file.write_text(yaml.safe_dump(msgspec.to_builtins(config)))
    environment = {
        **os.environ,
        "SLIPWAY_OUTPUTS": str(out),
        "SLIPWAY_PROGRESS": str(progress),
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }
    command = [sys.executable, "-m", "tests.integration.training.until_sigterm", module, "--config", str(file)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        while '"train"' not in (progress.read_text() if progress.exists() else ""):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert not (out / ".done").exists()
    assert not (out / "model").exists()
    (saved,) = (out / "checkpoints").glob("checkpoint-*")
    assert config.steps is not None
    assert int(saved.name.removeprefix("checkpoint-")) < config.steps
    return saved
