"""The memory estimate: counts equal transformers' modules, peaks equal measured ones, and every setting counts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.memory import Case
from training.memory.architecture import PUBLISHED, Architecture, UnknownArchitecture, parse, published, targeted
from training.memory.estimate import GIB, estimate
from training.memory.settings import Batch, Generation, Lora, Sharding, Training

EIGHT = parse(PUBLISHED["Qwen/Qwen3-VL-8B"])
BATCH = Batch(4, 2000, 4 * 4888, 4 * 64)
HALF = Training(size=2)


def total(
    training: Training, batch: Batch = BATCH, model: Architecture = EIGHT, sampled: Generation | None = None
) -> float:
    return estimate(model, training, batch, sampled).total


# what the hub lists as the number of parameters
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("Qwen/Qwen3-VL-2B-Instruct", 2_127_532_032),
        ("Qwen/Qwen3-VL-8B-Thinking", 8_767_123_696),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 8_292_166_656),
    ],
)
def test_published_models_have_as_many_parameters_as_published(name: str, count: int) -> None:
    model = published(name)
    assert model is not None
    assert sum(model.parameters().values()) == count


def test_an_unpublished_name_is_not_guessed() -> None:
    assert published("Qwen/Qwen3-VL-80B") is None
    assert published("Qwen/Qwen3-VL-2Beta") is None


@pytest.mark.ml
@pytest.mark.parametrize("name", [*PUBLISHED, "tiny"])
def test_counts_are_those_of_the_modules_that_transformers_builds(name: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    data: dict[str, Any] = Case().config() if name == "tiny" else dict(PUBLISHED[name])
    model = parse(data)
    settings = {key: value for key, value in data.items() if key not in ("model_type", "architectures")}
    if "text_config" not in settings:  # Qwen2.5-VL's own files are flat
        vision = settings.pop("vision_config")
        tied = settings.pop("tie_word_embeddings")
        settings = {"text_config": settings, "vision_config": vision, "tie_word_embeddings": tied}
    with torch.device("meta"):
        made = AutoModelForImageTextToText.from_config(AutoConfig.for_model(data["model_type"], **settings))
    parts = model.parameters()
    assert sum(parts.values()) == sum(parameter.numel() for parameter in made.parameters())
    assert parts["vision"] == sum(parameter.numel() for parameter in made.model.visual.parameters())
    linears = [m for n, m in made.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"]
    assert sum(linear.count for linear in model.linears()) == len(linears)
    assert sum(linear.weights for linear in model.linears()) == sum(m.weight.numel() for m in linears)


def test_a_file_of_another_model_is_refused_by_name() -> None:
    with pytest.raises(UnknownArchitecture, match="'llama' is not known"):
        parse({"model_type": "llama"})
    with pytest.raises(UnknownArchitecture, match="depth is missing"):
        parse({**Case().config(), "vision_config": {"hidden_size": 8, "intermediate_size": 8}})


def test_full_training_in_float32_stays_at_sixteen_bytes_a_parameter() -> None:
    found = estimate(EIGHT, Training(size=4, optimizer="adamw_torch_fused"), Batch(1, 64, 256, 8)).components
    kept = sum(v for name, v in found.items() if name.startswith(("weights", "optimiser", "gradients")))
    assert kept == 16 * 8_767_123_696


@pytest.mark.parametrize(
    "change",
    [
        {"checkpointing": True},
        {"lora": Lora()},
        {"freeze_vision": True},
        {"optimizer": "adamw_bnb_8bit"},
        {"optimizer": "adamw_torch_fused"},
        {"sharding": Sharding(8, 8, 8)},
        {"sharding": Sharding(1, 1, 8)},
    ],
    ids=str,
)
def test_what_saves_memory_lowers_the_estimate(change: dict[str, Any]) -> None:
    assert total(dataclasses.replace(HALF, **change), Batch(1, 500, 1024, 8)) < total(HALF, Batch(1, 500, 1024, 8)) or (
        total(dataclasses.replace(HALF, **change)) < total(HALF)
    )


@pytest.mark.parametrize("change", [{"size": 4}, {"copies": 1}, {"ddp": True}, {"attention": "eager"}], ids=str)
def test_what_costs_memory_raises_the_estimate(change: dict[str, Any]) -> None:
    assert total(dataclasses.replace(HALF, **change)) > total(HALF)


def test_quantised_weights_take_about_a_quarter_and_only_those_of_the_language_model() -> None:
    lora = dataclasses.replace(HALF, lora=Lora(), checkpointing=True)
    half, four = (estimate(EIGHT, dataclasses.replace(lora, quantization=q), BATCH).components for q in (None, "4bit"))
    assert four["weights: text"] / half["weights: text"] == pytest.approx(0.258, abs=0.002)
    for name in ("weights: vision", "weights: embeddings", "weights: head"):
        assert four[name] == half[name]


def test_a_lora_has_rank_times_both_sides_of_each_layer_it_lies_on() -> None:
    found = targeted(EIGHT.linears(), ["q_proj", "qkv"], vision=False)
    assert [linear.name for linear in found] == ["q_proj"]
    made = estimate(EIGHT, Training(size=2, lora=Lora(8, ["q_proj"]), freeze_vision=True), BATCH)
    assert made.trained == 8 * (4096 + 4096) * 36


def test_sampling_can_be_the_peak_and_grows_with_the_cache() -> None:
    training = Training(size=2, lora=Lora(), checkpointing=True)
    one, two = (total(training, Batch(1, 200, 400, 64), sampled=Generation(n, 4000, 400)) for n in (64, 128))
    cache = 64 * 4000 * 2 * 36 * 8 * 128 * 2
    assert two - one > cache
    made = estimate(EIGHT, training, Batch(1, 200, 400, 64), Generation(64, 4000, 400))
    assert max(made.moments, key=lambda name: made.moments[name]) == "generation"


@given(
    sequences=st.integers(1, 16),
    tokens=st.integers(16, 4096),
    checkpointing=st.booleans(),
    lora=st.booleans(),
    size=st.sampled_from([2, 4]),
    padded=st.booleans(),
)
def test_more_tokens_or_sequences_never_need_less(
    sequences: int, tokens: int, checkpointing: bool, lora: bool, size: int, padded: bool
) -> None:
    training = Training(size=size, lora=Lora() if lora else None, checkpointing=checkpointing)
    sizes = [
        total(training, Batch(n, t, n * 256, n * 8, padded))
        for n, t in ((sequences, tokens), (sequences + 1, tokens), (sequences + 1, tokens + 64))
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] > 8.7e9 * size


def test_the_components_add_up_to_the_peak_moment_and_what_stays() -> None:
    made = estimate(EIGHT, dataclasses.replace(HALF, cuda=False), BATCH)
    stay = sum(v for name, v in made.components.items() if name.startswith(("weights", "optimiser state", "inputs")))
    assert made.total == pytest.approx(stay + max(made.moments.values()))
    assert 50 < made.total / GIB < 400


# The one public curve of the LoRA of an 8B model in bfloat16 without checkpointing: 18.8 GB, and 12.0 GB for each 1,000
# tokens,
# of a head that keeps all logits. TRL's head keeps none: a training here takes less.
CURVE = (18.8, 12.0)


def test_without_checkpointing_the_logits_make_the_difference_to_the_published_curve() -> None:
    lora = dataclasses.replace(HALF, autocast=True, lora=Lora(), optimizer="adamw_torch_fused")

    def line(head: Any) -> tuple[float, float]:
        """(GB without tokens, GB for each 1,000)"""
        one, two = (total(dataclasses.replace(lora, head=head), Batch(1, n, 0, n)) / 1e9 for n in (2000, 4000))
        return 2 * one - two, (two - one) / 2

    whole, chunked = line("full"), line("chunked")
    assert whole == pytest.approx(CURVE, rel=0.08)
    logits = 151936 * 1000 * (2 + 4 + 4 + 8) / 1e9  # of 1,000 tokens: bfloat16, and in float32 with gradients
    assert whole[1] - chunked[1] == pytest.approx(1.05 * logits, rel=0.1)


def test_a_quantised_models_other_weights_are_float32() -> None:
    """peft's prepare_model_for_kbit_training makes embeddings, head, norms and tower float32; by hand for 8B."""
    training = Training(size=4, autocast=True, lora=Lora(), quantization="4bit", checkpointing=True)
    found = estimate(EIGHT, training, BATCH).components
    for name in ("embeddings", "head"):
        assert found[f"weights: {name}"] == 151936 * 4096 * 4
    assert found["weights: embeddings"] + found["weights: head"] == pytest.approx(4.64 * GIB, rel=0.01)
    assert found["weights: vision"] == pytest.approx(2.15 * GIB, rel=0.01)
