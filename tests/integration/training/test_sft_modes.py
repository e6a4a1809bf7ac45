"""What SFT trains, measures and tells: adapters, the frozen tower, precision, bad samples, trackers, early stop."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.config import ConfigError
from eval.environments.registry import TasksConfig
from eval.environments.splits import SPLIT_SEED
from eval.prompts import PromptConfig
from tests.support.made_once import made_once
from tests.unit.training.material import SIZES
from training.common.measuring.in_training import EvaluationConfig
from training.data.samples import load
from training.data.source import SourceConfig
from training.make_episodes import MakeEpisodesConfig, make
from training.options import LoraConfig
from training.sft.train import SftConfig, make_trainer, train
from training.tiny import TinyConfig, build

# TRL asks peft's model by the old name
pytestmark = [
    pytest.mark.ml,
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
PROMPT = PromptConfig(decimals=2, system="", history=0)
OPTIONS = {"size": 64, "grid": 4}
LORA = LoraConfig(rank=4, alpha=8)


@pytest.fixture(scope="module")
def material() -> tuple[Path, Path]:
    """(episodes: 8 of one step, model)"""
    root = made_once("sft-modes", fill)
    return root / "episodes", root / "model"


def fill(root: Path) -> None:
    options = {**OPTIONS, "split": "train"}
    make(
        MakeEpisodesConfig(environment="click", tasks=TasksConfig(count=8, seed=0), options=options, prompt=PROMPT),
        root,
    )
    build(TinyConfig(episodes=str(root / "episodes"), prompt=PROMPT, **SIZES), root / "model")  # type: ignore[arg-type]


def config(material: tuple[Path, Path], **changes: Any) -> SftConfig:
    values: dict[str, Any] = {
        "episodes": str(material[0]),
        "model": str(material[1]),
        "prompt": PROMPT,
        "steps": 2,
        "batch_size": 4,
        "learning_rate": 1e-2,
        "warmup_steps": 0,
        "log_every": 1,
        "save_every": 100,
        "predictions": 0,
        "max_new_tokens": 8,
    }
    return SftConfig(**{**values, **changes})


def weights(model: Path, file: str = "model.safetensors") -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(model / file))


def changed(before: Path, after: Path) -> set[str]:
    import torch

    first, second = weights(before), weights(after)
    assert first.keys() == second.keys()
    return {name for name in first if not torch.equal(first[name], second[name])}


@pytest.mark.parametrize(
    "lora", [pytest.param(None, id="full", marks=pytest.mark.nightly), pytest.param(LORA, id="lora")]
)
def test_a_frozen_vision_tower_stays_what_it_was(
    material: tuple[Path, Path], tmp_path: Path, lora: LoraConfig | None
) -> None:
    assert train(config(material, freeze_vision=True, lora=lora), tmp_path / "frozen", None)
    names = changed(material[1], tmp_path / "frozen" / "model")
    assert names
    assert not [name for name in names if ".visual." in name]
    assert train(config(material, lora=lora), tmp_path / "free", None)
    assert [name for name in changed(material[1], tmp_path / "free" / "model") if ".visual." in name]


@pytest.fixture(scope="module")
def adapted(material: tuple[Path, Path]) -> Path:
    """The outputs of a LoRA training."""
    return made_once("sft-modes-lora", adapt, material)


def adapt(out: Path, material: tuple[Path, Path]) -> None:
    assert train(config(material, lora=LORA), out, None)


def test_an_adapter_is_gone_on_from_wherever_its_base_lies_now(
    material: tuple[Path, Path], adapted: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(material[1], moved)
    settings = config((material[0], moved), adapter=str(adapted / "adapter"), steps=1, learning_rate=1e-9)
    assert train(settings, tmp_path / "out", None)
    # a step that changes next to nothing: the merged model is that of before
    first, second = weights(adapted / "model"), weights(tmp_path / "out" / "model")
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-6
    assert changed(material[1], tmp_path / "out" / "model")


@pytest.mark.nightly
def test_a_frozen_tower_takes_the_adapter_on_it_along(
    material: tuple[Path, Path], adapted: Path, tmp_path: Path
) -> None:
    import torch

    assert train(config(material, adapter=str(adapted / "adapter"), freeze_vision=True), tmp_path, None)
    before, after = (weights(root / "adapter", "adapter_model.safetensors") for root in (adapted, tmp_path))
    assert {name for name in before if ".visual." in name}
    for name, value in before.items():
        assert torch.equal(value, after[name]) == (".visual." in name), name


def test_an_adapter_for_another_base_model_is_refused(
    material: tuple[Path, Path], adapted: Path, tmp_path: Path
) -> None:
    wide = {**SIZES, "hidden": 64}
    build(TinyConfig(episodes=str(material[0]), prompt=PROMPT, **wide), tmp_path / "wide")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"is for another base model than .*wide: .* has in_features \d+, not \d+"):
        train(config((material[0], tmp_path / "wide"), adapter=str(adapted / "adapter")), tmp_path / "out", None)
    deep = {**SIZES, "layers": 2}
    build(TinyConfig(episodes=str(material[0]), prompt=PROMPT, **deep), tmp_path / "deep")  # type: ignore[arg-type]
    assert train(config((material[0], tmp_path / "deep"), lora=LORA, steps=1), tmp_path / "trained", None)
    with pytest.raises(ConfigError, match=r"there is no layer .*layers\.1"):
        train(config(material, adapter=str(tmp_path / "trained" / "adapter")), tmp_path / "out", None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="is no LoRA adapter"):
        train(config(material, adapter=str(tmp_path / "empty")), tmp_path / "out", None)


@pytest.mark.parametrize(("rslora", "dora"), [(False, False), (True, False), (False, True)])
def test_a_lora_is_scaled_and_split_as_the_configuration_says(
    material: tuple[Path, Path], tmp_path: Path, rslora: bool, dora: bool
) -> None:
    chosen = config(material, lora=LoraConfig(rank=4, alpha=8, rslora=rslora, dora=dora), steps=1)
    trainer = make_trainer(chosen, load(material[0], PROMPT.builder()), tmp_path)
    scalings = [getattr(module, "scaling", None) for module in trainer.model.modules()]
    scales = {value["default"] for value in scalings if isinstance(value, dict)}  # attention has a float of that name
    assert scales == {8 / 2 if rslora else 8 / 4}  # alpha / sqrt(rank), alpha / rank
    trained = {name for name, value in trainer.model.named_parameters() if value.requires_grad}
    assert any("lora_magnitude_vector" in name for name in trained) == dora


def test_a_cosine_ends_at_its_floor(material: tuple[Path, Path], tmp_path: Path) -> None:
    """The reference is the formula: the floor, and half a cosine over the rest."""
    chosen = config(material, schedule="cosine", floor=0.1, steps=8, learning_rate=1e-3, batch_size=2)
    trainer = make_trainer(chosen, load(material[0], PROMPT.builder()), tmp_path)
    trainer.create_optimizer_and_scheduler(8)
    rates = []
    for _ in range(9):
        rates.append(trainer.lr_scheduler.get_last_lr()[0])
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    assert rates == pytest.approx([1e-3 * (0.1 + 0.9 * (1 + math.cos(math.pi * i / 8)) / 2) for i in range(9)])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_attention_is_the_one_named_in_every_part(material: tuple[Path, Path], attention: Any) -> None:
    from training.common.model.loading import check_attention, load_model

    chosen = config(material, attention=attention)
    model, _ = load_model(chosen)
    kinds = {module.config._attn_implementation for module in model.modules() if hasattr(module, "config")}
    assert kinds == {attention}
    model.config.vision_config._attn_implementation = "other"
    with pytest.raises(ConfigError, match=f"attention: {attention} was asked for, and the vision part has other"):
        check_attention(model, chosen)


def test_small_images_are_scaled_up_to_min_pixels(material: tuple[Path, Path]) -> None:
    from PIL import Image

    from training.common.model.loading import load_processor

    images = load_processor(str(material[1]), min_pixels=128 * 128).image_processor
    grid = images([Image.new("RGB", (64, 64))], return_tensors="pt")["image_grid_thw"][0]
    assert (int(grid[1]), int(grid[2])) == (16, 16)  # patches of 8 pixels
    with pytest.raises(ConfigError, match=r"min_pixels: 1000000000 is more than"):
        load_processor(str(material[1]), min_pixels=10**9)


@pytest.mark.nightly
def test_max_pixels_makes_fewer_tokens(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for pixels in (None, 32 * 32):
        file = tmp_path / f"{pixels}.jsonl"
        monkeypatch.setenv("SLIPWAY_METRICS", str(file))
        assert train(config(material, max_pixels=pixels, steps=1), tmp_path / str(pixels), None)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        counts.append(next(line["value"] for line in lines if line["name"] == "train/tokens"))
    assert counts[0] - counts[1] == 4 * (16 - 4)  # four samples: 64 / 16 squared, then 32 / 16 squared


def test_opencua_is_refused_by_what_its_configuration_says(material: tuple[Path, Path], tmp_path: Path) -> None:
    for key, value in (
        ("model_type", "opencua"),
        ("auto_map", {"AutoModel": "modeling_opencua.OpenCUAForConditionalGeneration"}),
        ("architectures", ["OpenCUAForConditionalGeneration"]),
    ):
        folder = tmp_path / key
        shutil.copytree(material[1], folder)
        card = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**card, key: value}))
        with pytest.raises(ConfigError, match="OpenCUA is for evaluation only"):
            config((material[0], folder)).check()


def test_what_cannot_be_trained_is_told_before_the_weights_are_read(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders have no weights: who asks for them fails otherwise."""
    from transformers import CLIPImageProcessor, LlavaConfig

    from training.common.model import loading

    def without_weights(name: str, card: dict[str, Any] | None = None) -> Path:
        folder = tmp_path / name
        shutil.copytree(material[1], folder)
        (folder / "model.safetensors").unlink()
        if card is not None:
            (folder / "config.json").write_text(json.dumps(card))
        return folder

    def load(folder: Path, **changes: Any) -> None:
        loading.load_model(config((material[0], folder), **changes))

    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    llava = LlavaConfig(text_config={"model_type": "llama", **small}, vision_config=small).to_dict()
    with pytest.raises(ConfigError, match=r"of the family llava, which cannot be trained .* it has not a vision tower"):
        load(without_weights("llava", llava), freeze_vision=True)
    text = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **small}
    with pytest.raises(ConfigError, match="is no vision-language model that transformers knows"):
        load(without_weights("text", text))
    with pytest.raises(ConfigError, match=r"lora\.targets: no layer is called 'nowhere'"):
        load(without_weights("same"), lora=LoraConfig(targets=["nowhere"]))
    with pytest.raises(ConfigError, match=r"min_pixels: 1000000000 is more than"):
        load(tmp_path / "same", min_pixels=10**9, max_pixels=None)
    inner = loading.load_processor

    def of_another_family(*given: Any) -> Any:
        processor = inner(*given)
        processor.image_processor = CLIPImageProcessor()
        return processor

    monkeypatch.setattr(loading, "load_processor", of_another_family)
    with pytest.raises(ConfigError, match="it has not a processor that turns an image into a grid of patches"):
        load(tmp_path / "same")


def test_too_long_samples_end_the_training_or_are_counted(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("SLIPWAY_METRICS", str(metrics))
    with pytest.raises(ConfigError, match=r"^sample \d+ .*too_long: \d+ tokens; max_length is 20, nothing is cut off"):
        train(config(material, max_length=20, workers=1), tmp_path / "fails", None)
    broken = tmp_path / "episodes"
    shutil.copytree(material[0], broken)
    folder = sorted(broken.iterdir())[0]
    data = bytearray((folder / "000.png").read_bytes())
    start = data.index(b"IDAT") + 4
    data[start : start + 20] = bytes(20)  # whole to look at, broken to decode
    (folder / "000.png").write_bytes(data)
    settings = config((broken, material[1]), on_bad_sample="skip", workers=2, steps=4)
    assert train(settings, tmp_path / "skips", None)
    told = json.loads((tmp_path / "skips" / "results" / "bad_samples.json").read_text())
    assert told["while_training"]["by_reason"] == {"image_broken": 1}
    assert folder.name in told["while_training"]["examples"]["image_broken"][0]
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line["value"] for line in lines if line["name"] == "data/bad_samples_while_training"] == [1]


@pytest.mark.nightly
def test_a_mixture_of_a_packed_dataset_and_chats_trains(material: tuple[Path, Path], tmp_path: Path) -> None:
    chats = tmp_path / "chats"
    chats.mkdir()
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "What is two and two?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Four."}]},
    ]
    (chats / "general.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    mixture = [SourceConfig(path=str(material[0]), weight=3), SourceConfig(path=str(chats), weight=1, kind="chat")]
    settings = config(material, episodes=None, data=mixture, batch_size=2, steps=6, predictions=3)
    assert train(settings, tmp_path / "out", None)
    lines = (tmp_path / "out" / "results" / "samples" / "predictions.jsonl").read_text().splitlines()
    assert 1 <= len(lines) <= 3  # chats are of no episode, and are not drawn


def test_a_tracker_gets_the_figures(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("SLIPWAY_METRICS", str(tmp_path / "metrics.jsonl"))
    assert train(config(material, report_to=["tensorboard"], steps=3), tmp_path / "out", None)
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    events.Reload()
    seen = {event.step: event.value for event in events.Scalars("train/loss")}
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    ours = {line["step"]: line["value"] for line in lines if line["name"] == "train/loss"}
    assert list(seen) == [1, 2, 3]
    assert seen == pytest.approx(ours)


def test_a_tracker_gets_the_figures_of_evaluations(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from training.common import trackers

    monkeypatch.setenv("SLIPWAY_METRICS", str(tmp_path / "metrics.jsonl"))
    held_out = EvaluationConfig(episodes=str(material[0]), count=4, every=1, metric="exact", keep="last")
    settings = config(material, report_to=["tensorboard"], evaluation=held_out, sample_every=2, predictions=2)
    assert train(settings, tmp_path / "out", None)
    trackers.close()
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    events.Reload()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    ours = {(line["name"], line["step"]): line["value"] for line in lines}
    figures = {key: value for key, value in ours.items() if key[0].startswith(("eval/", "samples/"))}
    assert {("eval/exact", 1), ("eval/exact", 2), ("eval/matches", 2), ("samples/exact", 2)} <= {*figures}
    for (name, step), value in figures.items():
        tag = name if name.startswith("eval/") else f"eval/{name}"
        assert {event.step: event.value for event in events.Scalars(tag)}[step] == pytest.approx(value)
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2]


def curve(monkeypatch: pytest.MonkeyPatch, values: Sequence[float]) -> None:
    """The evaluations' values, in order, whatever the model does."""
    from eval.scores.stats import Estimate
    from training.common.measuring import callbacks

    left = iter(values)
    monkeypatch.setattr(callbacks, "evaluate", lambda *_: {"success": Estimate(value := next(left), value, value, 4)})


@pytest.mark.parametrize(
    ("values", "changes", "stops", "best"),
    [
        ([0.2, 0.5, 0.4, 0.5], {"patience": 2}, 4, 2),  # equal is not better
        pytest.param([0.0, 0.0, 0.0, 0.6, 0.1, 0.2], {"patience": 2, "minimum": 0.5}, 6, 4, marks=pytest.mark.nightly),
        pytest.param([0.1, 0.2, 0.3], {"patience": 1}, 3, 3, marks=pytest.mark.nightly),
        pytest.param([0.5, 0.1, 0.2], {"patience": None}, 3, 1, marks=pytest.mark.nightly),
    ],
    ids=["patience", "minimum", "always-better", "no-patience"],
)
def test_training_stops_by_the_task_and_keeps_the_best(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    values: list[float], changes: dict[str, Any], stops: int, best: int,
) -> None:  # fmt: skip
    curve(monkeypatch, values)
    evaluation = EvaluationConfig(environment="click", options=OPTIONS, every=1, **changes)
    steps = stops if evaluation.patience is None else 6
    settings = config(material, evaluation=evaluation, steps=steps if len(values) > 3 else 3, keep_checkpoints=1)
    assert train(settings, tmp_path / "out", None)
    states = sorted((tmp_path / "out" / "checkpoints").glob("checkpoint-*/trainer_state.json"))
    last = max(json.loads(state.read_text())["global_step"] for state in states)
    assert last == stops
    kept = tmp_path / "out" / "checkpoints" / f"checkpoint-{best}"
    assert not changed(kept, tmp_path / "out" / "model")
    (row,) = json.loads((tmp_path / "out" / "results" / "summary.json").read_text())
    assert (row["metric"], row["value"], row["benchmark"]) == ("success", max(values[:stops]), "click")
    assert f"at step {best}" in row["split"]


@pytest.mark.ci
def test_early_stop_remembers_across_a_resume(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.integration.training.test_sft_resume import stop_after

    evaluation = EvaluationConfig(environment="click", options=OPTIONS, every=1, patience=2)
    settings = config(material, evaluation=evaluation, steps=9, lora=LORA)
    curve(monkeypatch, [0.5, 0.3, 0.4])
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        assert not train(settings, tmp_path / "out", None)
    assert train(settings, tmp_path / "out", str(tmp_path / "out" / "checkpoints" / "checkpoint-2"))
    last = tmp_path / "out" / "checkpoints" / "checkpoint-3"
    assert json.loads((last / "trainer_state.json").read_text())["stateful_callbacks"]["Watch"]["attributes"]["stopped"]
    first = tmp_path / "out" / "checkpoints" / "checkpoint-1"
    ours, kept = (weights(root, "adapter_model.safetensors") for root in (tmp_path / "out" / "adapter", first))
    assert all(bool((ours[name] == kept[name]).all()) for name in kept)
    # cut off after it had stopped, and found again on another machine: only the end is done, with the best weights
    assert train(settings, tmp_path / "elsewhere", str(last))
    again = weights(tmp_path / "elsewhere" / "adapter", "adapter_model.safetensors")
    assert all(bool((again[name] == kept[name]).all()) for name in kept)
    with pytest.raises(StopIteration):  # no fourth evaluation was made, nor is there one
        train(msgspec.structs.replace(settings, steps=1), tmp_path / "other", None)


@pytest.mark.nightly
def test_held_out_steps_are_judged_and_samples_drawn(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    metrics = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("SLIPWAY_METRICS", str(metrics))
    evaluation = EvaluationConfig(episodes=str(material[0]), every=20, count=8, metric="click_in_box")
    settings = config(
        material, evaluation=evaluation, steps=40, sample_every=20, predictions=2, learning_rate=5e-3,
        max_new_tokens=24, batch_size=8,
    )  # fmt: skip
    assert train(settings, tmp_path / "out", None)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    seen = {(line["name"], line["step"]): line["value"] for line in lines if line["name"].startswith(("eval", "samp"))}
    assert {name for name, step in seen if step == 40} == {
        *("eval/exact", "eval/matches", "eval/click_in_box", "eval/with_box"),
        *("samples/exact", "samples/matches", "samples/click_in_box", "samples/with_box"),
    }
    assert seen["eval/click_in_box", 40] >= seen["eval/exact", 40]
    for step in (20, 40):
        folder = tmp_path / "out" / "results" / "samples" / f"step-{step}"
        assert {path.name for path in folder.iterdir()} == {"000.png", "001.png", "predictions.jsonl"}
        with Image.open(folder / "000.png") as picture:
            assert picture.width == 448


@pytest.mark.nightly
def test_a_closed_loop_is_run_on_the_model_in_memory(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same figure as eval.run gives for the model that was saved."""
    import asyncio

    from eval.agents.transformers import TransformersAgent
    from eval.rollout.loop import rollout
    from eval.run import environment
    from eval.scores.summary import summarise

    metrics = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("SLIPWAY_METRICS", str(metrics))
    tasks = TasksConfig(count=16, seed=SPLIT_SEED)
    evaluation = EvaluationConfig(environment="click", options=OPTIONS, tasks=tasks, every=30, keep="last")
    settings = config(
        material, evaluation=evaluation, steps=30, batch_size=8, learning_rate=5e-3, max_new_tokens=24
    )  # fmt: skip
    assert train(settings, tmp_path / "out", None)
    world = environment("click")
    results = asyncio.run(
        rollout(
            TransformersAgent(str(tmp_path / "out" / "model"), PROMPT.builder(), max_new_tokens=24),
            lambda: world.desktop(OPTIONS), world.tasks(16, SPLIT_SEED, OPTIONS), out=tmp_path / "eval",
            benchmark="click", environment="click",
        )
    )  # fmt: skip
    rows = summarise([result.record for result in results], version="1", split="test", seed=SPLIT_SEED)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    seen = {line["name"]: line["value"] for line in lines if line["name"].startswith("eval/")}
    assert seen == {f"eval/{row.metric}": row.value for row in rows if row.value is not None}


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_a_quantised_model_answers_with_the_trainings_bounds_and_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Nothing can be quantised without a GPU: the test lets a LoRA's model count as quantised when it is saved."""
    from tests.integration.training import preference
    from tests.integration.training.test_precision import TRAIN
    from tests.integration.training.test_precision import config as of_method
    from training.common.measuring import answering
    from training.common.model import saving

    agents = []
    final = answering.final_agent
    monkeypatch.setattr(saving, "merged", lambda *_: None)
    monkeypatch.setattr(answering, "final_agent", lambda *given: agents.append(final(*given)) or agents[-1])
    made = {name: preference.material() / name for name in ("episodes", "pairs", "model")}
    changes = {"lora": LORA, "min_pixels": 100 * 100, "max_pixels": 128 * 128, "attention": "eager"}
    settings = msgspec.structs.replace(of_method(method, made, **changes), max_new_tokens=3)
    if method == "sft":
        settings = msgspec.structs.replace(settings, predictions=1)
    assert TRAIN[method](settings, tmp_path / "out", None)
    assert not (tmp_path / "out" / "model").exists()
    (agent,) = agents
    size = agent.processor.image_processor.size
    assert (size["shortest_edge"], size["longest_edge"]) == (100 * 100, 128 * 128)
    assert agent.max_new_tokens == 3
    assert agent.model.config._attn_implementation == "eager"
    assert agent.model.peft_config
