"""The reward model as a job trains it: it looks at the images, goes on bit for bit, and gives the same rewards in any
batch."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError
from tests.integration.training.preference import difference, pairs_and_model, run_cut_off, same, weights
from tests.support.made_once import made_once
from training.data.pairs.store import read_pairs
from training.options import LoraConfig
from training.reward.model import RewardModel, encode, with_response
from training.reward.train import RewardConfig, make_trainer, train

pytestmark = pytest.mark.ml
STEPS = 10


@pytest.fixture(scope="module")
def made() -> tuple[Path, Path]:
    return pairs_and_model()


def config(made: tuple[Path, Path], **changes: Any) -> RewardConfig:
    values: dict[str, Any] = {
        "pairs": str(made[0]),
        "model": str(made[1]),
        "steps": STEPS,
        "batch_size": 4,
        "learning_rate": 3e-3,
        "warmup_steps": 2,
        "log_every": 2,
        "save_every": 6,
    }
    return RewardConfig(**{**values, **changes})


@pytest.fixture(scope="module")
def straight(made: tuple[Path, Path]) -> Path:
    """The outputs of a training that nothing disturbed."""
    return made_once("reward-straight", undisturbed, made)


def undisturbed(out: Path, made: tuple[Path, Path]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(out / "metrics.jsonl"))
        assert train(config(made), out, None)


def test_it_learns_and_leaves_everything(straight: Path, made: tuple[Path, Path]) -> None:
    from PIL import Image

    assert (straight / ".done").exists()
    lines = [json.loads(line) for line in (straight / "metrics.jsonl").read_text().splitlines()]
    losses = [line["value"] for line in lines if line["name"] == "train/loss"]
    assert len(losses) == STEPS // 2
    assert losses[0] == pytest.approx(math.log(2), abs=0.1)  # rewards begin near 0
    assert losses[-1] < losses[0] - 0.1
    assert {"train/accuracy", "train/margin", "train/reward", "eval/pair_accuracy"} <= {line["name"] for line in lines}
    rows = {row["metric"]: row for row in json.loads((straight / "results" / "summary.json").read_text())}
    held_out = read_pairs(made[0], "test")
    assert rows["pair_accuracy"]["n"] == len(held_out) == rows["pair_accuracy/source/synthetic"]["n"]
    assert rows["pair_accuracy"]["ci_low"] <= rows["pair_accuracy"]["value"] <= rows["pair_accuracy"]["ci_high"]
    with Image.open(straight / "results" / "plots" / "reliability.png") as picture:
        assert len(picture.getcolors(1_000_000) or []) > 10


def test_what_is_loaded_gives_the_rewards_that_were_measured(straight: Path, made: tuple[Path, Path]) -> None:
    held_out = read_pairs(made[0], "test")
    model = RewardModel.load(straight / "model", batch_size=3)
    chosen = model.score([with_response(p.prompt, p.chosen) for p in held_out], [held_out.images(p) for p in held_out])
    rejected = model.score(
        [with_response(p.prompt, p.rejected) for p in held_out], [held_out.images(p) for p in held_out]
    )
    told = [json.loads(line)["margin"] for line in (straight / "results" / "margins.jsonl").read_text().splitlines()]
    assert [a - b for a, b in zip(chosen, rejected, strict=True)] == pytest.approx(told, abs=1e-5)


def test_a_reward_depends_on_neither_batch_nor_padding(straight: Path, made: tuple[Path, Path]) -> None:
    import torch

    from training.data.samples import open_image

    held_out = list(found := read_pairs(made[0], "test"))
    chats = [with_response(p.prompt, side) for p in held_out for side in (p.chosen, p.rejected)][:9]
    images = [found.images(p) for p in held_out for _ in range(2)][:9]
    assert len({len(some) for some in images}) == 2  # one image or two
    model = RewardModel.load(straight / "model", batch_size=9)
    together = model.score(chats, images)
    model.batch_size = 1
    assert model.score(chats, images) == pytest.approx(together, abs=1e-5)
    opened = [[open_image(image) for image in some] for some in images]
    texts = [model.processor.apply_chat_template(chat, tokenize=False) for chat in chats]
    left = model.processor(text=texts, images=opened, padding=True, padding_side="left", return_tensors="pt")
    assert not bool(left["attention_mask"][:, 0].all())
    with torch.inference_mode():
        assert model.network(**left).tolist() == pytest.approx(together, abs=1e-5)


def test_it_looks_at_the_images(straight: Path, made: tuple[Path, Path]) -> None:
    import torch

    from training.data.samples import open_image

    found = read_pairs(made[0], "test")
    model = RewardModel.load(straight / "model")
    chats = [with_response(p.prompt, p.chosen) for p in found][:6]
    opened = [[open_image(image) for image in found.images(p)] for p in found][:6]
    batch = encode(model.processor, chats, opened)
    batch["pixel_values"].requires_grad_(True)
    rewards = model.network(**batch)
    rewards.sum().backward()
    gradient = batch["pixel_values"].grad
    patches = batch["image_grid_thw"].prod(dim=1).tolist()
    assert all(float(part.abs().max()) > 0 for part in torch.split(gradient, patches))  # every image counts
    moved = model.score(chats, [[image.rotate(180) for image in some] for some in opened])
    assert min(abs(a - b) for a, b in zip(moved, rewards.tolist(), strict=True)) > 1e-4
    with pytest.raises(ValueError, match="places for images"):
        model.score(chats[:1], [[]])
    with pytest.raises(ValueError, match="a control token"):
        model.score([with_response(found[0].prompt, "<|image_pad|>")], [found.images(found[0])])


def test_going_on_from_a_checkpoint_gives_the_same_bits(
    straight: Path, made: tuple[Path, Path], tmp_path: Path
) -> None:
    assert train(config(made), tmp_path, str(straight / "checkpoints" / "checkpoint-6"))
    assert same(straight / "model", tmp_path / "model")
    # cut off between its last checkpoint and its end
    assert train(config(made, workers=1), tmp_path / "end", str(straight / "checkpoints" / "checkpoint-10"))
    assert same(straight / "model", tmp_path / "end" / "model")
    with pytest.raises(ConfigError, match=r"centring: 0.01 there, 0.5 here"):
        train(config(made, centring=0.5), tmp_path, str(straight / "checkpoints" / "checkpoint-6"))


@pytest.mark.nightly
def test_sigterm_saves_the_step_and_the_next_try_ends_with_the_same_bits(
    straight: Path, made: tuple[Path, Path], tmp_path: Path
) -> None:
    saved = run_cut_off("training.reward", config(made, save_every=100), tmp_path)
    assert train(config(made), tmp_path / "out", str(saved))
    assert same(straight / "model", tmp_path / "out" / "model")


# peft asks transformers by the old name
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_a_lora_and_its_head_train_go_on_and_are_merged(made: tuple[Path, Path], tmp_path: Path) -> None:
    import torch

    chosen = config(made, lora=LoraConfig(rank=4, alpha=8), freeze_vision=True, steps=4, save_every=2)
    assert train(chosen, tmp_path / "a", None)
    saved = tmp_path / "a" / "checkpoints" / "checkpoint-2"
    assert (saved / "adapter_model.safetensors").exists()
    assert not (saved / "model.safetensors").exists()
    assert train(chosen, tmp_path / "b", str(saved))
    assert same(tmp_path / "a" / "model", tmp_path / "b" / "model")
    before, after = weights(made[1]), weights(tmp_path / "a" / "model")
    for name, value in after.items():
        if name.startswith("body."):
            unchanged = torch.equal(value, before[f"model.{name.removeprefix('body.')}"])
            assert unchanged == (".visual." in name or "proj" not in name), name
    assert RewardModel.load(tmp_path / "a" / "model").network.num_parameters() > 0


@pytest.mark.nightly
def test_accumulated_passes_are_one_batch(made: tuple[Path, Path], tmp_path: Path) -> None:
    changes = {"steps": 3, "learning_rate": 1e-3}
    assert train(config(made, **changes), tmp_path / "one", None)
    assert train(config(made, **changes, batch_size=2, accumulate=2), tmp_path / "two", None)
    assert difference(tmp_path / "one" / "model", tmp_path / "two" / "model") < 1e-3


def test_a_loss_that_is_no_number_ends_the_training(made: tuple[Path, Path], tmp_path: Path) -> None:
    import torch

    pairs = read_pairs(made[0], "train")
    trainer = make_trainer(config(made), pairs, tmp_path)
    with torch.no_grad():
        trainer.model.score.weight.fill_(math.nan)
    with pytest.raises(ConfigError, match="step 1: the loss is nan: lower learning_rate"):
        trainer.train()


def test_leaked_pairs_are_refused_before_the_model_is_loaded(made: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"held_out: pairs leak from training: .*the same task: login-"):
        train(config(made, held_out=str(made[0])), tmp_path, None)
    alone = tmp_path / "alone"
    shutil.copytree(made[0], alone)
    lines = (alone / "pairs.jsonl").read_text().replace('"split":"test"', '"split":"train"')
    (alone / "pairs.jsonl").write_text(lines)
    with pytest.raises(ConfigError, match="no pair of the split test: make the pairs with a test_share"):
        train(config((alone, made[1])), tmp_path, None)


def test_what_is_no_reward_model_is_refused(made: tuple[Path, Path], straight: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds none: reward.json is missing"):
        RewardModel.load(made[1])
    shutil.copytree(straight / "model", tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="reward model"):
        RewardModel.load(tmp_path / "model")
