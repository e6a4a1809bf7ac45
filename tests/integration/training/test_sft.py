"""Training as a job runs it: the same weights when it is cut off and goes on, and an outcome that loads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval.prompts import PromptConfig
from tests.support.made_once import made_once
from tests.unit.training.material import episodes, model
from training.options import LoraConfig
from training.sft.train import SftConfig, train

pytestmark = pytest.mark.ml
PROMPT = PromptConfig(decimals=2, system="", history=0)
STEPS = 12


@pytest.fixture(scope="module")
def material() -> tuple[Path, Path]:
    """(episodes, model)"""
    root = made_once("sft", fill)
    return root / "episodes", root / "model"


def fill(root: Path) -> None:
    model(root / "model", episodes(root, 4, PROMPT), PROMPT)


def config(material: tuple[Path, Path], **changes: Any) -> SftConfig:
    values: dict[str, Any] = {
        "episodes": str(material[0]),
        "model": str(material[1]),
        "prompt": PROMPT,
        "steps": STEPS,
        "batch_size": 4,
        "learning_rate": 5e-3,
        "log_every": 2,
        "save_every": 5,
        "predictions": 3,
        "max_new_tokens": 12,
    }
    return SftConfig(**{**values, **changes})


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


def same(a: Path, b: Path) -> bool:
    import torch

    first, second = weights(a), weights(b)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def straight(material: tuple[Path, Path]) -> Path:
    """The outputs of a training that nothing disturbed."""
    return made_once("sft-straight", undisturbed, material)


def undisturbed(out: Path, material: tuple[Path, Path]) -> None:
    metrics, progress = out / "metrics.jsonl", out / "progress.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(metrics))
        patch.setenv("SLIPWAY_PROGRESS", str(progress))
        assert train(config(material), out, None)


def test_it_learns_and_tells_so(straight: Path) -> None:
    lines = [json.loads(line) for line in (straight / "metrics.jsonl").read_text().splitlines()]
    losses = [line["value"] for line in lines if line["name"] == "train/loss"]
    assert len(losses) == STEPS // 2 + 1  # step 5 is saved, and so told
    assert losses[-1] < losses[0] - 1
    assert {"train/learning_rate", "train/tokens", "train/tokens_per_second"} <= {line["name"] for line in lines}
    last = json.loads((straight / "progress.jsonl").read_text().splitlines()[-1])
    assert (last["step"], last["total"], last["phase"]) == (STEPS, STEPS, "train")


def test_it_leaves_a_model_checkpoints_and_pictures(straight: Path, material: tuple[Path, Path]) -> None:
    from PIL import Image
    from transformers import AutoProcessor

    assert (straight / ".done").exists()
    assert {path.name for path in (straight / "checkpoints").glob("checkpoint-*")} == {"checkpoint-10", "checkpoint-12"}
    before, after = (AutoProcessor.from_pretrained(path) for path in (material[1], straight / "model"))
    assert before.chat_template == after.chat_template
    samples = straight / "results" / "samples"
    lines = [json.loads(line) for line in (samples / "predictions.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    for line in lines:
        with Image.open(samples / line["picture"]) as picture:
            assert picture.width == 480
            assert len(picture.getcolors(1_000_000) or []) > 10
        assert line["target"].startswith("Action: ")
        assert line["split"] == "training data"
        assert line["right"] or line["predicted"] != line["target"]
    (row,) = json.loads((straight / "results" / "summary.json").read_text())
    assert (row["benchmark"], row["split"], row["n"]) == ("memorisation", "training data", 3)
    assert row["value"] == sum(line["predicted"] == line["target"] for line in lines) / 3


def test_going_on_from_a_checkpoint_gives_the_same_bits(
    straight: Path, material: tuple[Path, Path], tmp_path: Path
) -> None:
    resume = straight / "checkpoints" / "checkpoint-10"
    assert train(config(material, predictions=0), tmp_path, str(resume))
    assert same(straight / "model", tmp_path / "model")


@pytest.mark.ci
def test_sigterm_saves_the_step_and_the_next_try_ends_with_the_same_bits(
    straight: Path, material: tuple[Path, Path], tmp_path: Path
) -> None:
    """To the whole group of processes: those that read the data live until the step is saved."""
    import msgspec

    file = tmp_path / "config.yaml"
    chosen = config(material, predictions=0, save_every=100, workers=1)
    file.write_text(yaml.safe_dump(msgspec.to_builtins(chosen)))
    out = tmp_path / "out"
    progress = tmp_path / "progress.jsonl"
    environment = {
        **os.environ,
        "SLIPWAY_OUTPUTS": str(out),
        "SLIPWAY_PROGRESS": str(progress),
        "OMP_NUM_THREADS": str(_threads()),
    }
    program = ["tests.integration.training.until_sigterm", "training.sft", "--config", str(file)]
    command = [sys.executable, "-m", *program]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while '"train"' not in (progress.read_text() if progress.exists() else ""):  # the first step is done
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGTERM)
        told, errors = process.communicate()
    assert process.returncode == 0, errors[-2000:]
    assert "stopped after step" in told
    assert not (out / ".done").exists()
    assert not (out / "model").exists()
    (saved,) = (out / "checkpoints").glob("checkpoint-*")
    assert int(saved.name.removeprefix("checkpoint-")) < STEPS
    assert train(config(material, predictions=0), out, str(saved))
    assert (out / ".done").exists()
    assert same(straight / "model", out / "model")


def _threads() -> int:
    import torch

    return torch.get_num_threads()


# TRL asks peft's model by the old name
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_a_lora_trains_and_is_merged_into_a_model_that_loads(material: tuple[Path, Path], tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText

    lora = LoraConfig(rank=8, alpha=16)
    assert train(config(material, lora=lora, learning_rate=3e-3, steps=6, predictions=2), tmp_path, None)
    assert not same(material[1], tmp_path / "model")
    assert AutoModelForImageTextToText.from_pretrained(tmp_path / "model").num_parameters() > 0
    assert (tmp_path / "checkpoints" / "checkpoint-6" / "adapter_model.safetensors").exists()
