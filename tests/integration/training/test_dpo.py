"""DPO as a job trains it: images are in every pass, the reference stays what it was, and it goes on bit for bit.

TRL's own warning about gradient checkpointing is filtered: it asks transformers by the old name.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from eval.config import ConfigError
from eval.environments.registry import TasksConfig
from tests.integration.training.preference import PROMPT, pairs_and_model, run_cut_off, same, weights
from tests.support.made_once import made_once
from training.common.measuring.in_training import EvaluationConfig
from training.data.pairs.store import Pairs, read_pairs
from training.data.samples import open_image
from training.dpo.train import DpoConfig, main, make_trainer, train
from training.options import LoraConfig

pytestmark = [
    pytest.mark.ml,
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
STEPS = 10


@pytest.fixture(scope="module")
def made() -> tuple[Path, Path]:
    return pairs_and_model()


def config(made: tuple[Path, Path], **changes: Any) -> DpoConfig:
    values: dict[str, Any] = {
        "pairs": str(made[0]),
        "model": str(made[1]),
        "prompt": PROMPT,
        "steps": STEPS,
        "batch_size": 4,
        "learning_rate": 3e-3,
        "warmup_steps": 2,
        "log_every": 2,
        "save_every": 6,
        "answers": 4,
        "max_new_tokens": 8,
    }
    return DpoConfig(**{**values, **changes})


@pytest.fixture(scope="module")
def straight(made: tuple[Path, Path]) -> Path:
    """The outputs of a training that nothing disturbed."""
    return made_once("dpo-straight", undisturbed, made)


def undisturbed(out: Path, made: tuple[Path, Path]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(out / "metrics.jsonl"))
        assert train(config(made), out, None)


def test_it_learns_and_leaves_everything(straight: Path) -> None:
    assert (straight / ".done").exists()
    lines = [json.loads(line) for line in (straight / "metrics.jsonl").read_text().splitlines()]
    found: dict[str, list[float]] = {}
    for line in lines:
        found.setdefault(line["name"], []).append(line["value"])
    assert len(found["train/loss"]) == STEPS // 2
    assert found["train/loss"][-1] < found["train/loss"][0] - 0.5
    assert found["train/logp_chosen"][-1] > found["train/logp_chosen"][0]  # the SFT term holds them up
    assert {"train/pair_accuracy", "train/margin", "eval/malformed", "eval/matches"} <= found.keys()
    rows = {row["metric"]: row for row in json.loads((straight / "results" / "summary.json").read_text())}
    assert rows["malformed"]["n"] == rows["matches"]["n"] == 4
    assert rows["malformed"]["split"] == "test"


def test_a_batch_is_the_prompt_its_images_and_both_answers_whole(made: tuple[Path, Path], tmp_path: Path) -> None:
    trainer = make_trainer(config(made), pairs := read_pairs(made[0], "train"), tmp_path)
    assert trainer.data_collator.inner.max_length is None
    assert trainer.args.max_length is None
    indices = [*[i for i in range(len(pairs)) if len(pairs[i].images) == 2][:2], 0]
    batch = trainer.data_collator([{"index": index} for index in indices])
    tokenizer = trainer.processing_class.tokenizer
    answers = [tokenizer.decode(ids[mask.bool()]) for ids, mask in zip(*_sides(batch), strict=True)]
    assert answers == [f"{pairs[i].chosen}<|im_end|>\n" for i in indices] + [
        f"{pairs[i].rejected}<|im_end|>\n" for i in indices
    ]
    images = 2 * sum(len(pairs[i].images) for i in indices)
    assert len(batch["image_grid_thw"]) == images
    pads = int((batch["input_ids"] == tokenizer.convert_tokens_to_ids("<|image_pad|>")).sum())
    assert pads == int(batch["image_grid_thw"].prod(dim=1).sum()) // 4  # no image token was cut off


def test_the_prompt_is_token_for_token_what_an_evaluation_asks(made: tuple[Path, Path], tmp_path: Path) -> None:
    trainer = make_trainer(config(made), pairs := read_pairs(made[0], "train"), tmp_path)
    processor = trainer.processing_class
    for index in (0, _with_images(pairs, 2)):
        batch = trainer.data_collator([{"index": index}])
        pair = pairs[index]
        asked = processor(
            text=[processor.apply_chat_template(pair.prompt, tokenize=False, add_generation_prompt=True)],
            images=[[open_image(path) for path in pairs.images(pair)]],
            return_tensors="pt",
        )
        for side in (0, 1):
            prompt = (batch["completion_mask"][side] == 0) & (batch["attention_mask"][side] == 1)
            assert batch["input_ids"][side][prompt].tolist() == asked["input_ids"][0].tolist()


def _sides(batch: dict[str, Any]) -> tuple[Any, Any]:
    return batch["input_ids"], batch["completion_mask"]


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4, alpha=8)], ids=["full", "lora"])
def test_the_reference_is_the_model_as_it_began(made: tuple[Path, Path], tmp_path: Path, lora: Any) -> None:
    import torch

    trainer = make_trainer(config(made, losses=["sigmoid"], lora=lora), read_pairs(made[0], "train"), tmp_path)
    batch = trainer.data_collator([{"index": index} for index in range(3)])
    assert trainer.compute_loss(trainer.model, batch).item() == pytest.approx(math.log(2), abs=1e-6)
    assert (trainer.ref_model is None) == (lora is not None)
    before = [side.clone() for side in trainer.compute_ref_log_probs(trainer.ref_model or trainer.model, batch)]
    if lora is None:
        assert not any(parameter.requires_grad for parameter in trainer.ref_model.parameters())
    with torch.no_grad():
        for name, parameter in trainer.model.named_parameters():
            if lora is None or (parameter.requires_grad and "lora_B" in name):
                parameter.add_(0.05 * torch.randn_like(parameter))
    assert trainer.compute_loss(trainer.model, batch).item() != pytest.approx(math.log(2), abs=1e-3)
    after = trainer.compute_ref_log_probs(trainer.ref_model or trainer.model, batch)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_it_looks_at_the_images(made: tuple[Path, Path], tmp_path: Path) -> None:
    """Faults of public code: the loss sees another image than the sample's, or none for the whole batch."""
    import torch

    trainer = make_trainer(config(made, beta=1.0), pairs := read_pairs(made[0], "train"), tmp_path)
    indices = [0, _with_images(pairs, 2), _with_images(pairs, 2) + 1]
    batch = trainer.data_collator([{"index": index} for index in indices])
    batch["pixel_values"].requires_grad_(True)
    trainer.compute_loss(trainer.model, batch).backward()
    patches = batch["image_grid_thw"].prod(dim=1).tolist()
    parts = torch.split(batch["pixel_values"].grad, patches)
    assert all(float(part.abs().max()) > 0 for part in parts)  # every image counts, on both sides
    with torch.no_grad():
        chosen, rejected = trainer.compute_ref_log_probs(trainer.ref_model, batch)
        batch["pixel_values"] = torch.cat([part.flip(0) for part in torch.split(batch["pixel_values"], patches)])
        other = trainer.compute_ref_log_probs(trainer.ref_model, batch)
    assert float((chosen - other[0]).abs().min()) > 1e-4
    assert float((rejected - other[1]).abs().min()) > 1e-4


def _with_images(pairs: Pairs, count: int) -> int:
    return next(i for i in range(len(pairs)) if len(pairs[i].images) == count)


def test_log_probabilities_are_the_same_alone_and_in_a_batch(made: tuple[Path, Path], tmp_path: Path) -> None:
    import torch

    trainer = make_trainer(config(made), read_pairs(made[0], "train"), tmp_path)
    rows = [{"index": index} for index in range(5)]
    together = torch.stack(trainer.compute_ref_log_probs(trainer.ref_model, trainer.data_collator(rows)))
    alone = [
        torch.stack(trainer.compute_ref_log_probs(trainer.ref_model, trainer.data_collator([row]))) for row in rows
    ]
    assert together.shape == (2, 5)
    assert torch.allclose(together, torch.cat(alone, dim=1), atol=1e-4)


@pytest.mark.parametrize(
    "lora",
    [None, pytest.param(LoraConfig(rank=4, alpha=8, dropout=0.1), marks=pytest.mark.nightly)],
    ids=["full", "lora"],
)
def test_going_on_from_a_checkpoint_gives_the_same_bits(
    straight: Path, made: tuple[Path, Path], tmp_path: Path, lora: Any
) -> None:
    whole = straight
    if lora is not None:
        assert train(config(made, lora=lora), whole := tmp_path / "whole", None)
        assert (whole / "adapter" / "adapter_model.safetensors").exists()
    assert train(config(made, lora=lora), tmp_path / "again", str(whole / "checkpoints" / "checkpoint-6"))
    assert same(whole / "model", tmp_path / "again" / "model")
    assert not same(made[1], whole / "model")


@pytest.mark.nightly
def test_sigterm_saves_the_step_and_the_next_try_ends_with_the_same_bits(
    straight: Path, made: tuple[Path, Path], tmp_path: Path
) -> None:
    saved = run_cut_off("training.dpo", config(made, save_every=100), tmp_path)
    assert train(config(made), tmp_path / "out", str(saved))
    assert same(straight / "model", tmp_path / "out" / "model")


@pytest.mark.nightly
def test_measuring_while_it_trains_changes_nothing(straight: Path, made: tuple[Path, Path], tmp_path: Path) -> None:
    evaluation = EvaluationConfig(environment="login", tasks=TasksConfig(count=2, seed=1_000_000), every=5, keep="last")
    assert train(config(made, answer_every=2, evaluation=evaluation), tmp_path, None)
    assert same(straight / "model", tmp_path / "model")
    rows = [row["metric"] for row in json.loads((tmp_path / "results" / "summary.json").read_text())]
    assert rows[0] == "success"


@pytest.mark.nightly
def test_an_adapter_goes_on_against_itself_as_it_began(made: tuple[Path, Path], tmp_path: Path) -> None:
    import torch

    lora = LoraConfig(rank=4, alpha=8)
    assert train(config(made, lora=lora, steps=3), tmp_path / "a", None)
    chosen = config(made, adapter=str(tmp_path / "a" / "adapter"), steps=4, save_every=2)
    trainer = make_trainer(
        msgspec.structs.replace(chosen, losses=["sigmoid"]), read_pairs(made[0], "train"), tmp_path / "x"
    )
    batch = trainer.data_collator([{"index": index} for index in range(3)])
    assert trainer.compute_loss(trainer.model, batch).item() == pytest.approx(math.log(2), abs=1e-6)
    assert train(chosen, tmp_path / "b", None)
    assert sorted(path.name for path in (tmp_path / "b" / "adapter").iterdir() if path.is_dir()) == []
    assert not same(tmp_path / "a" / "model", tmp_path / "b" / "model")
    assert train(chosen, tmp_path / "c", str(tmp_path / "b" / "checkpoints" / "checkpoint-2"))
    assert same(tmp_path / "b" / "model", tmp_path / "c" / "model")
    assert all(bool(torch.isfinite(value).all()) for value in weights(tmp_path / "b" / "model").values())


def test_a_loss_that_is_no_number_ends_the_training(made: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the loss is"):
        train(config(made, learning_rate=1e9, max_grad_norm=0.0, steps=4), tmp_path, None)
    assert not (tmp_path / ".done").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_length": 512}, "unknown field `max_length`"),  # truncation would cut image tokens
        ({"losses": ["sft"]}, "sft alone"),
        ({"losses": []}, "name at least one"),
        ({"losses": ["sigmoid", "sigmoid"]}, "none twice"),
        ({"losses": ["dpo"]}, "'dpo'"),
        ({"weights": [1.0]}, "1 of them for 2 losses"),
        ({"lora": {"targets": ["lm_head"]}}, "lm_head cannot be trained"),
        ({"label_smoothing": 0.7}, "label_smoothing"),
        ({"beta": 0}, "beta"),
    ],
)
def test_a_bad_configuration_is_one_line_and_exit_code_78(
    change: dict[str, object], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"model": ".", "pairs": ".", "steps": 3, **change}))
    assert main(["--config", str(file), "--out", str(tmp_path / "out")]) == 78
    printed = capsys.readouterr().err
    assert says in printed
    assert printed.count("\n") == 1


def test_the_default_holds_the_form_and_plain_dpo_is_warned_of() -> None:
    plain = {"model": ".", "pairs": ".", "steps": 1}
    assert DpoConfig(**plain).losses == ["sigmoid", "sft"]  # type: ignore[arg-type]
    assert DpoConfig(**plain).warning() is None  # type: ignore[arg-type]
    warning = DpoConfig(**plain, losses=["sigmoid"]).warning()  # type: ignore[arg-type]
    assert "without sft" in str(warning)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"answer_every": 1}, "answer_every needs the whole model on each device: not with fsdp"),
        (
            {"evaluation": EvaluationConfig(environment="login", tasks=TasksConfig(count=1, seed=1_000_000))},
            "evaluation: success needs the whole model on each device: not with fsdp",
        ),
    ],
    ids=["answer_every", "evaluation"],
)
def test_answering_while_training_is_refused_with_fsdp_on_a_cpu(
    made: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    says: str,
) -> None:
    """Without a GPU accelerate leaves FSDP out, and the trainer sets it up only when it begins to train."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")  # as `accelerate launch` does
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(msgspec.to_builtins(config(made, steps=2, warmup_steps=0, **change))))
    assert main(["--config", str(file), "--out", str(tmp_path / "out")]) == 78
    assert says in capsys.readouterr().err
