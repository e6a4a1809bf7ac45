"""Wherever a training is cut off, the next try ends with the same bits, or says why it can not go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from eval.config import ConfigError
from eval.environments.registry import TasksConfig
from eval.environments.splits import SPLIT_SEED
from eval.prompts import PromptConfig
from tests.support.made_once import made_once
from tests.support.mounts import small_file_system
from tests.unit.training.material import SIZES
from training.common.measuring.in_training import EvaluationConfig
from training.common.reporting import StopRequest
from training.make_episodes import MakeEpisodesConfig, make
from training.options import LoraConfig
from training.sft.train import SftConfig, main, train
from training.tiny import TinyConfig, build

pytestmark = pytest.mark.ml
PROMPT = PromptConfig(decimals=2, system="", history=0)
OPTIONS = {"size": 64, "grid": 4}
LORA = LoraConfig(rank=4, alpha=8, dropout=0.1)  # dropout: the random state matters
EVALUATION = EvaluationConfig(
    environment="click", options=OPTIONS, tasks=TasksConfig(count=4, seed=SPLIT_SEED), every=2, metric="success"
)
# TRL asks peft's model by the old name
IGNORE = "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"


@pytest.fixture(scope="module")
def material() -> tuple[Path, Path]:
    """(episodes: 11 of one step, model)"""
    root = made_once("sft-resume", fill)
    return root / "episodes", root / "model"


def fill(root: Path) -> None:
    options = {**OPTIONS, "split": "train"}
    make(
        MakeEpisodesConfig(environment="click", tasks=TasksConfig(count=11, seed=0), options=options, prompt=PROMPT),
        root,
    )
    build(TinyConfig(episodes=str(root / "episodes"), prompt=PROMPT, **SIZES), root / "model")  # type: ignore[arg-type]


def config(material: tuple[Path, Path], **changes: Any) -> SftConfig:
    values: dict[str, Any] = {
        "episodes": str(material[0]),
        "model": str(material[1]),
        "prompt": PROMPT,
        "steps": 7,
        "batch_size": 2,
        "learning_rate": 1e-3,
        "log_every": 1,
        "save_every": 100,
        "predictions": 0,
        "max_new_tokens": 8,
        "lora": LORA,
    }
    return SftConfig(**{**values, **changes})


def same(a: Path, b: Path) -> bool:
    import torch
    from safetensors.torch import load_file

    first, second = (load_file(model / "model" / "model.safetensors") for model in (a, b))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# Epochs are of 6 batches: with `accumulate` 1, step 6 ends one and 7 is in the next; with 2, every third step ends one
CASES = {
    "first-step": (1, {}),
    "end-of-an-epoch": (6, {}),
    "accumulating": (2, {"accumulate": 2}),
    "second-epoch": (4, {"accumulate": 2}),
    "odd-rest": (2, {"accumulate": 4}),  # the epoch's second step has two batches
    "workers": (2, {"workers": 2}),
    "workers-accumulating": (4, {"accumulate": 2, "workers": 2}),
    "evaluated": (3, {"evaluation": EVALUATION, "sample_every": 2, "predictions": 2}),
    "at-an-evaluation": (4, {"evaluation": EVALUATION}),
    "full": (3, {"lora": None}),
    "by-length": (8, {"group_by_length": True, "workers": 1, "steps": 9}),  # in the second epoch
}
QUICK = ("workers-accumulating", "evaluated", "by-length")


@pytest.mark.ci
@pytest.mark.filterwarnings(IGNORE)
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly) for name in CASES]
)
def test_a_training_cut_off_at_any_step_ends_with_the_same_bits(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    step, changes = CASES[case]
    plain = {name: value for name, value in changes.items() if name not in ("workers", "evaluation", "sample_every")}
    assert train(config(material, **{**plain, "predictions": 0}), tmp_path / "straight", None)
    stop_after(monkeypatch, step)
    assert not train(config(material, **changes), tmp_path / "cut", None)
    monkeypatch.undo()
    checkpoint = tmp_path / "cut" / "checkpoints" / f"checkpoint-{step}"
    assert [path.name for path in (tmp_path / "cut" / "checkpoints").glob("checkpoint-*")].count(checkpoint.name) == 1
    keep = {"evaluation": msgspec.structs.replace(EVALUATION, keep="last")} if "evaluation" in changes else {}
    assert train(config(material, **{**changes, **keep}), tmp_path / "cut", str(checkpoint))
    assert same(tmp_path / "straight", tmp_path / "cut")


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """SIGTERM comes during this step, just before its end."""
    from training.common.reporting import Reporting

    before = Reporting.on_step_end

    def on_step_end(self: Reporting, args: Any, state: Any, control: Any, **more: Any) -> Any:
        if state.global_step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return before(self, args, state, control, **more)

    monkeypatch.setattr(Reporting, "on_step_end", on_step_end)


@pytest.mark.nightly
@pytest.mark.filterwarnings(IGNORE)
def test_sigterm_in_an_evaluation_puts_it_off(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("SLIPWAY_METRICS", str(metrics))
    asked = StopRequest.__init__

    def at_once(self: StopRequest) -> None:
        asked(self)
        self.asked = True

    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "__init__", at_once)
        every = msgspec.structs.replace(EVALUATION, every=1, keep="last")
        assert not train(config(material, evaluation=every), tmp_path / "out", None)
    state = json.loads((tmp_path / "out" / "checkpoints" / "checkpoint-1" / "trainer_state.json").read_text())
    assert state["stateful_callbacks"]["Watch"]["attributes"]["pending"]
    assert "eval/success" not in metrics.read_text()
    resume = str(tmp_path / "out" / "checkpoints" / "checkpoint-1")
    assert train(config(material, evaluation=every), tmp_path / "out", resume)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line["step"] for line in lines if line["name"] == "eval/success"] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.filterwarnings(IGNORE)
def test_a_run_that_was_cut_off_after_its_last_step_trains_no_more(material: tuple[Path, Path], tmp_path: Path) -> None:
    assert train(config(material, steps=3), tmp_path / "out", None)
    last = tmp_path / "out" / "checkpoints" / "checkpoint-3"
    (tmp_path / "out" / ".done").unlink()
    assert train(config(material, steps=3), tmp_path / "again", str(last))
    assert (tmp_path / "again" / ".done").exists()
    assert same(tmp_path / "out", tmp_path / "again")
    assert not list((tmp_path / "again").glob("checkpoints/checkpoint-*"))


@pytest.fixture(scope="module")
def checkpoint(material: tuple[Path, Path]) -> Path:
    return made_once("sft-resume-checkpoint", save, material) / "checkpoints" / "checkpoint-1"


def save(out: Path, material: tuple[Path, Path]) -> None:
    assert train(config(material, steps=2, save_every=1, lora=None), out, None)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"learning_rate": 2e-3}, "learning_rate: 0.001 there, 0.002 here"),
        ({"batch_size": 4, "seed": 3}, "batch_size: 2 there, 4 here; seed: 0 there, 3 here"),
        ({"lora": LORA}, "lora: None there"),
        ({"max_length": 100}, "max_length: None there, 100 here"),
    ],
)
def test_a_checkpoint_of_another_configuration_is_refused(
    checkpoint: Path, material: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any], says: str,
) -> None:  # fmt: skip
    assert refused(material, tmp_path, checkpoint, **{"lora": None, "steps": 2, **changes}) == 78
    printed = capsys.readouterr().err
    assert says in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("torn", ["", "{", '{"epoch": 1}', None], ids=["empty", "cut", "partial", "missing"])
def test_a_torn_checkpoint_is_refused(
    checkpoint: Path, material: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], torn: str | None
) -> None:
    copy = tmp_path / "checkpoint-1"
    shutil.copytree(checkpoint, copy)
    (copy / "trainer_state.json").unlink()
    if torn is not None:
        (copy / "trainer_state.json").write_text(torn)
    assert refused(material, tmp_path, copy, lora=None, steps=2) == 78
    assert "no complete checkpoint: trainer_state.json is missing or broken" in capsys.readouterr().err


def refused(material: tuple[Path, Path], root: Path, resume: Path, *more: str, **changes: Any) -> int:
    file = root / "config.yaml"
    file.write_text(yaml.safe_dump(msgspec.to_builtins(config(material, **changes))))
    return main(["--config", str(file), "--out", str(root / "out"), "--resume", str(resume), *more])


def test_a_checkpoint_of_another_model_is_refused_by_its_content(
    checkpoint: Path, material: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A copy elsewhere goes on; other weights do not, and within a run no such thing ends it for good."""
    from safetensors.torch import load_file, save_file

    same_bytes, other = tmp_path / "same", tmp_path / "other"
    shutil.copytree(material[1], same_bytes)
    shutil.copytree(material[1], other)
    file = other / "model.safetensors"
    save_file({name: value * 1.01 for name, value in load_file(file).items()}, file, {"format": "pt"})
    changes: dict[str, Any] = {"lora": None, "steps": 2}
    assert refused((material[0], same_bytes), tmp_path, checkpoint, **changes) == 0
    assert "resume:" not in capsys.readouterr().out
    assert refused((material[0], other), tmp_path, checkpoint, **changes) == 78
    printed = capsys.readouterr().err
    assert "was made with other content: model: model.safetensors; give the same, or --resume-anyway" in printed
    assert printed.count("\n") == 1
    monkeypatch.setenv("SLIPWAY_ATTEMPT", "2")
    assert refused((material[0], other), tmp_path, checkpoint, **changes) == 1
    assert refused((material[0], other), tmp_path, checkpoint, "--resume-anyway", **changes) == 0
    assert "model: model.safetensors; --resume-anyway" in capsys.readouterr().out
    before = tmp_path / "checkpoint-1"
    shutil.copytree(checkpoint, before)
    (before / "identity.json").unlink()
    assert refused((material[0], other), tmp_path, before, **changes) == 0
    assert "is of before checkpoints had digests: model and data are not compared" in capsys.readouterr().out


def test_a_loss_that_is_no_number_ends_the_run_before_it_is_saved(material: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"step \d+: the loss is nan: lower learning_rate"):
        train(config(material, lora=None, learning_rate=1e30, warmup_steps=0, save_every=1), tmp_path, None)
    saved = list((tmp_path / "checkpoints").glob("checkpoint-*"))
    for folder in saved:
        state = json.loads((folder / "trainer_state.json").read_text())
        assert all(entry["loss"] == entry["loss"] for entry in state["log_history"])
    assert not (tmp_path / "model").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of its own for the outputs: gives the folder and a function that leaves it so many bytes."""
    folder = tmp_path / "disk"

    def leave(size: int) -> None:
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        with (folder / "full").open("wb") as file:
            file.write(b"\0" * (free - size))

    with small_file_system(folder, "size=64m"):
        yield folder, leave


# a checkpoint is 443 kB of weights, 900 kB of optimiser, 50 kB of the rest
@pytest.mark.parametrize(
    "left",
    [
        pytest.param(100_000, id="weights", marks=pytest.mark.nightly),
        pytest.param(600_000, id="optimizer"),
        pytest.param(1_380_000, id="state", marks=pytest.mark.nightly),
    ],
)
def test_a_full_disk_is_one_line_and_leaves_no_torn_checkpoint(
    material: tuple[Path, Path], small_disk: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, left: int
) -> None:
    folder, leave = small_disk
    out, changes = folder / "out", {"lora": None, "steps": 4, "save_every": 2}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(msgspec.to_builtins(config(material, **changes))))
    assert main(["--config", str(file), "--out", str(out)]) == 0
    shutil.rmtree(out / "checkpoints" / "checkpoint-4")
    first = out / "checkpoints" / "checkpoint-2"
    assert main(["--config", str(file), "--out", str(tmp_path / "straight"), "--resume", str(first)]) == 0
    shutil.rmtree(out / "model")
    leave(left)
    capsys.readouterr()
    assert main(["--config", str(file), "--out", str(out), "--resume", str(first)]) == 78
    printed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("config: ")]
    assert printed == [f"config: no space left on the disk of {out}; raise resources.disk, or lower keep_checkpoints"]
    assert [path.name for path in (out / "checkpoints").glob("checkpoint-*")] == ["checkpoint-2"]
    (folder / "full").unlink()
    assert main(["--config", str(file), "--out", str(out), "--resume", str(first)]) == 0
    assert same(out, tmp_path / "straight")


def tokens(metrics: Path) -> dict[int, float]:
    """train/tokens by step."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return {line["step"]: line["value"] for line in lines if line["name"] == "train/tokens"}


@pytest.mark.filterwarnings(IGNORE)
def test_tokens_are_counted_from_the_beginning_after_a_resume(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_METRICS", str(tmp_path / "straight.jsonl"))
    chosen = config(material, steps=3, save_every=2)
    assert train(chosen, tmp_path / "straight", None)
    monkeypatch.setenv("SLIPWAY_METRICS", str(tmp_path / "again.jsonl"))
    assert train(chosen, tmp_path / "again", str(tmp_path / "straight" / "checkpoints" / "checkpoint-2"))
    straight, again = tokens(tmp_path / "straight.jsonl"), tokens(tmp_path / "again.jsonl")
    assert straight[2] < straight[3] == again[3]
    assert same(tmp_path / "straight", tmp_path / "again")


@pytest.mark.filterwarnings(IGNORE)
def test_data_that_shrank_or_grew_since_the_checkpoint_is_refused(material: tuple[Path, Path], tmp_path: Path) -> None:
    episodes = tmp_path / "episodes"
    shutil.copytree(material[0], episodes)
    chosen = config((episodes, material[1]), steps=2, save_every=1)
    assert train(chosen, tmp_path / "out", None)
    saved = str(tmp_path / "out" / "checkpoints" / "checkpoint-1")
    gone = min(path for path in episodes.iterdir() if path.is_dir())
    shutil.move(gone, tmp_path / "gone")
    with pytest.raises(ConfigError, match="was made with 11 samples, and the data has 10 now: it has shrunk"):
        train(chosen, tmp_path / "less", saved)
    shutil.copytree(tmp_path / "gone", gone)
    shutil.copytree(tmp_path / "gone", episodes / "one-more")
    with pytest.raises(ConfigError, match="the data has 12 now: it has grown"):
        train(chosen, tmp_path / "more", saved)
