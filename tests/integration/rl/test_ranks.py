"""Two processes on the CPU (gloo), as torchrun starts them: they train what one process trains, whole or in shards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eval.environments.registry import TasksConfig
from tests.integration.rl.conftest import CHAT, rl_config
from tests.integration.rl.test_asynchronous import agree
from tests.integration.rl.test_training import newest, same, written
from tests.integration.rl.worlds import LEDGER
from tests.support.waiting import until
from training.options import LoraConfig
from training.rl.config import RlConfig
from training.rl.sections import AsyncConfig, ReplayConfig
from training.rl.train import train

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
# sums in another order: some hundred thousand float32 terms
CLOSE, WEIGHT = 1e-4, 2e-3
BESIDE: dict[str, Any] = {
    "asynchronous": AsyncConfig(staleness=1),
    "batching": "ready",
    "loss": "cispo",
    "epsilon_high": 5.0,
}
# odd numbers of rows on both sides, every row's own mean, and rows that two generations of steps share
BY_ROWS: dict[str, Any] = {
    **{"loss": "grpo", "importance": "sequence", "batch_size": 1},
    **{"steps_per_generation": 2, "num_iterations": 2, "save_every": 4, "steps": 8},
}

REPLAYED: dict[str, Any] = {
    **{"environment": "tests.integration.rl.worlds:Easy", "tasks": TasksConfig(count=2, seed=0), "reward": "success"},
    **{"replay": ReplayConfig(), "steps": 3},
}


def environment(out: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    root = str(Path(__file__).parents[3])
    return {
        **os.environ,
        **{"OMP_NUM_THREADS": "1", "PYTHONPATH": root, "SLIPWAY_METRICS": str(out / "metrics.jsonl")},
        **(more or {}),
    }


def command(config: RlConfig, out: Path, resume: Path | None = None, processes: int = 2) -> list[str]:
    out.mkdir(exist_ok=True)
    more = [] if resume is None else ["--resume", str(resume)]
    file = written(config, out)
    return [*TORCHRUN, str(processes), "-m", "training.rl", "--config", str(file), "--out", str(out), *more]


def run(
    config: RlConfig,
    out: Path,
    resume: Path | None = None,
    processes: int = 2,
    more: Mapping[str, str] | None = None,
) -> Path:
    done = subprocess.run(
        command(config, out, resume, processes), env=environment(out, more), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (out / ".done").exists()
    return out


def alone(config: RlConfig, out: Path) -> Path:
    """The same in one process."""
    out.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(out / "metrics.jsonl"))
        assert train(config, out, None)
    return out


def told(out: Path, name: str) -> list[float]:
    """A figure of each step; each step tells it once, whatever number of processes there is."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    found = [(line["step"], line["value"]) for line in lines if line["name"] == f"train/{name}"]
    assert len({step for step, _ in found}) == len(found) > 0
    return [value for _, value in found]


def weights(model: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(model / "model.safetensors"))


def assert_same_training(two: Path, one: Path, steps: int | None = None) -> None:
    for name in ("loss", "grad_norm", "reward", "turns"):
        assert told(two, name)[:steps] == pytest.approx(told(one, name)[:steps], rel=CLOSE, abs=CLOSE), name


@pytest.mark.parametrize(
    ("changes", "processes"),
    [
        pytest.param(BY_ROWS, 2, id="by rows"),
        pytest.param({}, 3, id="tokens, three processes", marks=pytest.mark.nightly),
        pytest.param({"lora": LoraConfig(rank=4, alpha=8)}, 2, id="lora", marks=pytest.mark.nightly),
        pytest.param({"advantage": "gigpo", "batch_size": 64}, 2, id="gigpo, one pass", marks=pytest.mark.nightly),
        pytest.param(REPLAYED, 2, id="replay", marks=pytest.mark.nightly),
    ],
)
def test_several_processes_train_what_one_trains(
    start: Path, tmp_path: Path, changes: dict[str, Any], processes: int
) -> None:
    config = rl_config(start, **changes)
    one, two = alone(config, tmp_path / "one"), run(config, tmp_path / "two", processes=processes)
    assert_same_training(two, one)
    ours, theirs = weights(two / "model"), weights(one / "model")
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert float((value - theirs[name]).abs().max()) < WEIGHT, name


@pytest.mark.nightly
def test_whole_rollouts_are_divided_whole(chat_start: Path, tmp_path: Path) -> None:
    config = rl_config(chat_start, prompt=CHAT, rows="trajectory")
    one, two = alone(config, tmp_path / "one"), run(config, tmp_path / "two")
    assert_same_training(two, one)
    assert told(two, "rows_per_rollout") == told(one, "rows_per_rollout")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "changes",
    [{"fsdp": True}, {"fsdp": True, "lora": LoraConfig(rank=4, alpha=8)}, {"lora": LoraConfig(rank=4, alpha=8)}],
    ids=["shards", "shards of a lora", "lora"],
)
def test_what_samples_beside_gets_the_whole_weights(start: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    """The gate compares the worker's log probabilities with those of the shards that had the same weights, of now and
    of updates before."""
    config = rl_config(start, **BESIDE, **changes)
    two = run(config, tmp_path / "two")
    gate = json.loads((two / "results" / "gate.json").read_text())
    assert (gate["generation"], gate["outside"]) == (3, 0)
    assert max(told(two, "gate_mean")) < 1e-5
    assert max(told(two, "staleness")) >= 1
    one = alone(rl_config(start, **BESIDE, **{**changes, "fsdp": False}), tmp_path / "one")
    # one generation's rollouts are those of the start; the next ones depend on when the worker got its weights
    assert_same_training(two, one, steps=1)
    assert not same(two / "model", start)


@pytest.mark.nightly
@pytest.mark.parametrize("fsdp", [True, False], ids=["shards", "whole"])
def test_a_ledger_outside_agrees_after_a_process_was_killed(start: Path, tmp_path: Path, fsdp: bool) -> None:
    """SIGKILL of the first process, and of the second: all end, the worker too, and what comes after counts once."""
    ledger = tmp_path / "ledger"
    ledger.touch()
    config = rl_config(start, **BESIDE, environment="tests.integration.rl.worlds:Ledgered", fsdp=fsdp)
    out = tmp_path / "out"
    for rank in (0, 1):
        with subprocess.Popen(
            command(config, out, newest(out)),
            env=environment(out, {LEDGER: str(ledger)}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            until(partial(there, out / "checkpoints" / f"checkpoint-{rank + 1}"))
            os.kill(children(process.pid)[rank], signal.SIGKILL)
            assert process.wait(60) != 0
        until(lambda: not left(out))
    run(config, out, newest(out), more={LEDGER: str(ledger)})
    agree(out, ledger, 4)


def there(checkpoint: Path) -> bool:
    """Whether a checkpoint is whole."""
    return (checkpoint / "trainer_state.json").exists()


def children(process: int) -> list[int]:
    """The processes that torchrun started, by their ranks."""
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=True)
    return sorted(map(int, found.stdout.split()))


def left(out: Path) -> bool:
    """Whether a process of a training, or its worker, runs: a worker has a ledger, or metrics, of this training."""
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"SLIPWAY_METRICS={out}/".encode() in place.read_bytes():
                return True
        except OSError:
            continue
    return False


@pytest.mark.nightly
def test_sigterm_in_the_rollouts_stops_all_and_the_rest_has_the_same_bits(start: Path, tmp_path: Path) -> None:
    world = {"environment": "tests.integration.rl.worlds:Dawdle"}
    straight = run(rl_config(start, **world, save_every=100), tmp_path / "straight")
    config, out = rl_config(start, **world, save_every=100), tmp_path / "out"
    with subprocess.Popen(
        command(config, out), env=environment(out), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        until(lambda: (out / "metrics.jsonl").exists() and "train/loss" in (out / "metrics.jsonl").read_text())
        time.sleep(0.3)  # the next rollouts take a second and a half
        os.killpg(process.pid, signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert said.count("stopped after step 1, before its next generation") == 1
    assert not (out / ".done").exists()
    (saved,) = (out / "checkpoints").glob("checkpoint-*")
    assert saved.name == "checkpoint-1"
    run(config, out, saved)
    assert same(straight / "model", out / "model")


@pytest.mark.nightly
def test_why_it_failed_is_said_once_and_nobody_waits(start: Path, tmp_path: Path) -> None:
    config, out = rl_config(start, environment="tests.integration.rl.worlds:Gone"), tmp_path / "out"
    done = subprocess.run(
        command(config, out), env=environment(out), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr.count("8 of 8 rollouts are void, more than max_void 0.25") == 1
    assert "training/rl" not in done.stderr  # no traceback of ours
    assert not (out / "model").exists()
