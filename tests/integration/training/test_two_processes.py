"""Two processes on CPU (gloo): data parallel and FSDP train what one process trains; resume and SIGTERM work there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from eval.config import load
from eval.environments.registry import TasksConfig
from eval.prompts import PromptConfig
from tests.integration.training import best_rank
from tests.support.made_once import made_once
from tests.unit.training.material import SIZES
from training.common.measuring.in_training import EvaluationConfig
from training.make_episodes import MakeEpisodesConfig, make
from training.options import LoraConfig
from training.sft.train import SftConfig, train
from training.tiny import TinyConfig, build

pytestmark = pytest.mark.ml
PROMPT = PromptConfig(decimals=2, system="", history=0)
OPTIONS = {"split": "train", "size": 64, "grid": 4}
STEPS = 6
BIN = Path(sys.executable).parent
TORCHRUN = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2"]
CONFIGS = Path(__file__).parents[3] / "examples" / "configs" / "accelerate"
# reductions add in another order: float32 sums of some hundred thousand terms, six steps of Adam later
LOSS, WEIGHT = 2e-4, 2e-3


@pytest.fixture(scope="module")
def material() -> tuple[Path, Path]:
    """(episodes: 16 of one step, model)"""
    root = made_once("two-processes", fill)
    return root / "episodes", root / "model"


def fill(root: Path) -> None:
    make(
        MakeEpisodesConfig(environment="click", tasks=TasksConfig(count=16, seed=0), options=OPTIONS, prompt=PROMPT),
        root,
    )
    build(TinyConfig(episodes=str(root / "episodes"), prompt=PROMPT, **SIZES), root / "model")  # type: ignore[arg-type]


def write(folder: Path, material: tuple[Path, Path], **changes: Any) -> Path:
    values: dict[str, Any] = {
        "episodes": str(material[0]),
        "model": str(material[1]),
        "prompt": PROMPT,
        "steps": STEPS,
        "batch_size": 2,
        "learning_rate": 1e-3,
        "log_every": 1,
        "save_every": 4,
        "predictions": 2,
        "max_new_tokens": 8,
        "warmup_steps": 1,
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(msgspec.to_builtins(SftConfig(**{**values, **changes}))))
    return file


def environment(out: Path) -> dict[str, str]:
    told = {
        "SLIPWAY_OUTPUTS": out,
        "SLIPWAY_METRICS": out / "metrics.jsonl",
        "SLIPWAY_PROGRESS": out / "progress.jsonl",
    }
    return {**os.environ, "OMP_NUM_THREADS": "1", **{name: str(path) for name, path in told.items()}}


def run(launcher: list[str], config: Path, resume: Path | None = None) -> Path:
    out = config.parent
    module = [sys.executable, "-m", "training.sft"] if not launcher else [*launcher, "-m", "training.sft"]
    more = [] if resume is None else ["--resume", str(resume)]
    done = subprocess.run(
        [*module, "--config", str(config), *more], env=environment(out), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (out / ".done").exists()
    return out


def losses(out: Path) -> list[float]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["value"] for line in lines if line["name"] == "train/loss"]


def weights(model: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(model / "model.safetensors"))


def assert_close(two: Path, one: Path) -> None:
    assert losses(two) == pytest.approx(losses(one), abs=LOSS)
    ours, theirs = weights(two / "model"), weights(one / "model")
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.shape == theirs[name].shape
        assert float((value - theirs[name]).abs().max()) < WEIGHT, name


@pytest.fixture(scope="module")
def one(material: tuple[Path, Path]) -> Path:
    """The same global batches in one process."""
    return made_once("two-processes-one", alone, material)


def alone(out: Path, material: tuple[Path, Path]) -> None:
    config = write(out, material, batch_size=4, predictions=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(out / "metrics.jsonl"))
        assert train(load(config, SftConfig), out, None)


def test_data_parallel_is_one_process(material: tuple[Path, Path], one: Path, tmp_path: Path) -> None:
    out = run(TORCHRUN, write(tmp_path / "dp", material))
    assert len(losses(out)) == STEPS  # the first process alone tells
    assert_close(out, one)
    assert len(list((out / "results" / "samples").glob("*.png"))) == 2


@pytest.mark.nightly
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "own_disk", [pytest.param(False, id="one disk", marks=pytest.mark.nightly), pytest.param(True, id="a disk each")]
)
def test_all_processes_take_the_best_weights(material: tuple[Path, Path], tmp_path: Path, own_disk: bool) -> None:
    evaluation = EvaluationConfig(episodes=str(material[0]), metric="exact", every=2, count=4, keep="best")
    config = write(tmp_path / "best", material, evaluation=evaluation, predictions=0)
    out = config.parent
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [*TORCHRUN, best_rank.__file__, str(config), str(out), *(["own disk"] if own_disk else [])],
        env={**environment(out), "PYTHONPATH": str(root)}, cwd=root, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "model/ is that of step 4" in done.stdout
    first, second = (json.loads((out / f"end-{rank}.json").read_text()) for rank in (0, 1))
    assert [row["value"] for row in first["rows"]] == [0.75]
    assert first["rows"] == second["rows"]
    if not own_disk:  # else the second process has no checkpoint's weights; the first one alone saves the model
        assert first["weights"] == second["weights"]
    home = out / "0" if own_disk else out
    best, model = weights(home / "checkpoints" / "checkpoint-4"), weights(home / "model")
    assert all(bool((best[name] == value).all()) for name, value in model.items())


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["dp", "fsdp"])
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_launchers_and_kinds(material: tuple[Path, Path], one: Path, tmp_path: Path, launcher: str, kind: str) -> None:
    fsdp = kind == "fsdp"
    if launcher == "torchrun":
        out = run(TORCHRUN, write(tmp_path / "two", material, fsdp=fsdp))
    else:  # the files that we ship, for two processes
        command = [str(BIN / "accelerate"), "launch", "--config_file", str(CONFIGS / f"{kind}.yaml")]
        out = run([*command, "--num_processes", "2", "--main_process_port", "0"], write(tmp_path / "two", material))
    assert_close(out, one)
    sharded = list((out / "checkpoints" / "checkpoint-4").glob("pytorch_model_fsdp*"))
    assert bool(sharded) == fsdp  # accelerate alone would fall back to data parallel on CPU


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_shards_without_padding_are_one_process_with_it(material: tuple[Path, Path], one: Path, tmp_path: Path) -> None:
    assert_close(run(TORCHRUN, write(tmp_path / "free", material, fsdp=True, padding_free=True)), one)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fsdp", [False, True], ids=["dp", "fsdp"])
@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4, alpha=8)], ids=["full", "lora"])
def test_resume_in_two_processes(
    material: tuple[Path, Path], tmp_path: Path, fsdp: bool, lora: LoraConfig | None
) -> None:
    import torch

    changes: dict[str, Any] = {"fsdp": fsdp, "lora": lora, "predictions": 0}
    straight = run(TORCHRUN, write(tmp_path / "straight", material, **changes))
    resume = straight / "checkpoints" / "checkpoint-4"
    again = run(TORCHRUN, write(tmp_path / "again", material, **changes), resume)
    first, second = weights(straight / "model"), weights(again / "model")
    assert all(torch.equal(first[name], second[name]) for name in first)
    single = run([], write(tmp_path / "single", material, **{**changes, "fsdp": False, "batch_size": 4}))
    assert_close(straight, single)
    refused = subprocess.run(
        [sys.executable, "-m", "training.sft", "--config", str(straight / "config.yaml"), "--resume", str(resume)],
        env=environment(tmp_path / "refused"), capture_output=True, text=True,
    )  # fmt: skip
    assert refused.returncode == 78
    assert "processes: 2 there, 1 here" in refused.stderr


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fsdp", [False, True], ids=["dp", "fsdp"])
def test_sigterm_stops_both_after_the_same_step(material: tuple[Path, Path], tmp_path: Path, fsdp: bool) -> None:
    import torch

    changes: dict[str, Any] = {"fsdp": fsdp, "steps": 4, "save_every": 100, "predictions": 0}
    straight = run(TORCHRUN, write(tmp_path / "straight", material, **changes))
    config = write(tmp_path / "cut", material, **changes)
    out = config.parent
    with subprocess.Popen(
        [*TORCHRUN, "-m", "tests.integration.training.until_sigterm", "training.sft", "--config", str(config)],
        env=environment(out), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        while '"train"' not in (out / "progress.jsonl").read_text() if (out / "progress.jsonl").exists() else True:
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)  # as the runtime does
        told, _ = process.communicate()
    assert not (out / ".done").exists()
    (saved,) = (out / "checkpoints").glob("checkpoint-*")
    step = int(saved.name.removeprefix("checkpoint-"))
    assert 0 < step < 4
    assert told.count(f"stopped after step {step}") == 1
    again = run(TORCHRUN, config, saved)
    first, second = weights(straight / "model"), weights(again / "model")
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_both_stop_early_on_the_word_of_the_first(material: tuple[Path, Path], tmp_path: Path) -> None:
    evaluation = EvaluationConfig(episodes=str(material[0]), metric="exact", every=2, patience=2, count=4)
    out = run(TORCHRUN, write(tmp_path / "early", material, evaluation=evaluation, steps=20, sample_every=3))
    names = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in names if line["name"] == "eval/exact"] == [2, 4, 6]  # 0 % each time
    assert {path.name for path in (out / "results" / "samples").glob("step-*")} == {"step-3", "step-6"}
