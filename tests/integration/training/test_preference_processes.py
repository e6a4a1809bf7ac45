"""Two processes on CPU (gloo): the reward model and DPO train what one process trains, and go on bit for bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.integration.training.preference import PROMPT, difference, pairs_and_model, same
from tests.integration.training.test_two_processes import LOSS, TORCHRUN, WEIGHT, environment, losses
from training.dpo.train import DpoConfig
from training.reward.train import RewardConfig

pytestmark = [pytest.mark.ml, pytest.mark.nightly, pytest.mark.timeout(900)]
STEPS = 6
COMMON: dict[str, Any] = {
    "steps": STEPS,
    "batch_size": 2,
    "learning_rate": 1e-3,
    "warmup_steps": 1,
    "log_every": 1,
    "save_every": 4,
}
# Means over a process's tokens, averaged over processes, are not quite the mean over all tokens where answers differ in
# length: so much for DPO's SFT term. Without it the two are equal but for the order of sums.
UNEVEN = 0.1


@pytest.fixture(scope="module")
def made() -> tuple[Path, Path]:
    return pairs_and_model()


def run(folder: Path, module: str, config: Any, *, two: bool, resume: Path | None = None) -> Path:
    folder.mkdir(parents=True)
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(msgspec.to_builtins(config)))
    start = [*TORCHRUN, "-m", module] if two else [sys.executable, "-m", module]
    more = [] if resume is None else ["--resume", str(resume)]
    done = subprocess.run(
        [*start, "--config", str(file), *more], env=environment(folder), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (folder / ".done").exists()
    return folder


def values(out: Path, name: str) -> list[float]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["value"] for line in lines if line["name"] == name]


@pytest.mark.parametrize("fsdp", [False, True], ids=["dp", "fsdp"])
def test_a_reward_model_of_two_processes_is_that_of_one(made: tuple[Path, Path], tmp_path: Path, fsdp: bool) -> None:
    config = RewardConfig(pairs=str(made[0]), model=str(made[1]), **COMMON)
    one = run(tmp_path / "one", "training.reward", msgspec.structs.replace(config, batch_size=4), two=False)
    two = run(tmp_path / "two", "training.reward", msgspec.structs.replace(config, fsdp=fsdp), two=True)
    assert len(losses(two)) == STEPS  # the first process alone tells
    assert losses(two) == pytest.approx(losses(one), abs=LOSS)
    assert values(two, "train/margin") == pytest.approx(values(one, "train/margin"), abs=1e-3)
    assert difference(one / "model", two / "model") < WEIGHT
    again = run(
        tmp_path / "again",
        "training.reward",
        msgspec.structs.replace(config, fsdp=fsdp),
        two=True,
        resume=two / "checkpoints" / "checkpoint-4",
    )
    assert same(two / "model", again / "model")


@pytest.mark.parametrize("losses_", [["sigmoid"], ["sigmoid", "sft"]], ids=["sigmoid", "mix"])
@pytest.mark.parametrize("fsdp", [False, True], ids=["dp", "fsdp"])
def test_dpo_in_two_processes_is_that_in_one(
    made: tuple[Path, Path], tmp_path: Path, fsdp: bool, losses_: list[Any]
) -> None:
    config = DpoConfig(
        pairs=str(made[0]),
        model=str(made[1]),
        prompt=PROMPT,
        losses=losses_,
        answers=4,
        max_new_tokens=8,
        **COMMON,
    )
    one = run(tmp_path / "one", "training.dpo", msgspec.structs.replace(config, batch_size=4), two=False)
    two = run(tmp_path / "two", "training.dpo", msgspec.structs.replace(config, fsdp=fsdp), two=True)
    exact = "sft" not in losses_
    assert len(losses(two)) == STEPS
    assert losses(two) == pytest.approx(losses(one), abs=LOSS if exact else UNEVEN)
    if exact:
        assert difference(one / "model", two / "model") < WEIGHT
    again = run(
        tmp_path / "again",
        "training.dpo",
        msgspec.structs.replace(config, fsdp=fsdp),
        two=True,
        resume=two / "checkpoints" / "checkpoint-4",
    )
    assert same(two / "model", again / "model")
