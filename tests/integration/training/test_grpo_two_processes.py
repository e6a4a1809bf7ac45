"""GRPO in two processes on the CPU (gloo), with groups that lie across both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.integration.training import clicks, grpo_rank
from tests.unit.training.material import SIZES
from training.grpo.config import GrpoConfig
from training.options import LoraConfig
from training.rewards import RewardSpec
from training.tiny import TinyConfig, build

TORCHRUN = [str(Path(sys.executable).parent / "torchrun"), "--standalone", "--nproc-per-node", "2"]


@pytest.mark.ml
@pytest.mark.nightly
@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4, alpha=8)])
def test_both_processes_end_with_the_same_weights(lora: LoraConfig | None, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "out"
    episodes = clicks.episodes(32)
    build(TinyConfig(episodes=str(episodes), prompt=clicks.PROMPT, **SIZES), model)
    config = GrpoConfig(
        model=str(model),
        data=str(episodes),
        prompt=clicks.PROMPT,
        rewards=[RewardSpec(name="tests.integration.training.grpo_rank:variety")],
        steps=3,
        batch_size=6,
        num_generations=4,  # three groups, the second half here and half there
        max_completion=6,
        learning_rate=1e-2,
        warmup_steps=0,
        beta=0.05,
        lora=lora,
        log_every=1,
        predictions=1,
    )
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(msgspec.to_builtins(config)))
    root = Path(__file__).parents[3]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [*TORCHRUN, grpo_rank.__file__, str(file), str(out)],
        env=environment,
        cwd=root,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = ((out / f"digest-{rank}").read_text().split("\n") for rank in (0, 1))
    assert first[0] == second[0]
    assert first[1] != second[1]  # each sampled its own
    assert (out / ".done").exists()
    assert (out / "model").is_dir()
