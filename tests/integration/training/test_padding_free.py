"""`padding_free` changes no gradient, lets no sample see another, and spares the padding's work.

The reference is the same trainer, or the same model, on the padded batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError
from tests.integration.training import preference
from tests.integration.training.test_accumulate import COMMON, NEAR, chats, gradient
from training.data.faults import Faults
from training.data.pairs.store import read_pairs
from training.data.source import open_source
from training.dpo import train as dpo
from training.grpo import train as grpo
from training.grpo.config import GrpoConfig
from training.grpo.prompts import Prompts
from training.options import LoraConfig
from training.reward import train as reward
from training.rewards import RewardSpec
from training.rewards import load as load_rewards
from training.sft import train as sft

pytestmark = [
    pytest.mark.ml,
    # TRL asks peft's model by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
IMAGE, VIDEO, START = 6, 7, 5  # token ids
GRID = (4, 4)  # patches of an image
TOKENS = 4  # of an image, after merging 2 x 2 patches


def vision_model(kind: str, **changes: Any) -> Any:
    """A model of random weights, of 2 layers, with as many heads for queries as Qwen's have for each key."""
    import torch
    import transformers

    torch.manual_seed(3)
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3], "mrope_interleaved": True}
    text = {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64, "rope_parameters": rope,
        "max_position_embeddings": 512, **changes,
    }  # fmt: skip
    tokens = {"image_token_id": IMAGE, "video_token_id": VIDEO, "vision_start_token_id": START}
    vision: dict[str, Any] = {"depth": 2, "hidden_size": 32, "num_heads": 2, "patch_size": 4, "out_hidden_size": 64}
    if kind == "qwen3":
        vision |= {"intermediate_size": 48, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]}
        config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision, **tokens)
        return transformers.Qwen3VLForConditionalGeneration(config)
    vision |= {"intermediate_size": 48, "window_size": 16, "fullatt_block_indexes": [1]}
    config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **tokens)
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def batch(lengths: list[int], *, left: bool = False, seed: int = 0, images: bool = True) -> dict[str, Any]:
    """Samples of these lengths, each with one image at its beginning, padded on the right or on the left."""
    import torch

    chance = torch.Generator().manual_seed(seed)
    width = max(lengths)
    ids, mask = torch.zeros(len(lengths), width, dtype=torch.int64), torch.zeros(len(lengths), width, dtype=torch.int64)
    for number, length in enumerate(lengths):
        sample = torch.randint(8, 64, (length,), generator=chance)
        if images:
            sample[1], sample[2 : 2 + TOKENS] = START, IMAGE
        place = slice(width - length, width) if left else slice(0, length)
        ids[number, place], mask[number, place] = sample, 1
    if not images:
        return {"input_ids": ids, "attention_mask": mask}
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "mm_token_type_ids": (ids == IMAGE).long(),
        "pixel_values": torch.randn(len(lengths) * GRID[0] * GRID[1], 3 * 2 * 4 * 4, generator=chance),
        "image_grid_thw": torch.tensor([[1, *GRID]] * len(lengths)),
    }


@pytest.mark.parametrize("images", [True, False], ids=["images", "text"])
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("kind", ["qwen3", "qwen2.5"])
def test_logits_and_gradients_are_those_of_the_padded_batch(kind: str, left: bool, images: bool) -> None:
    import torch

    from training.common.model.padding_free import without_padding

    inputs = batch([30, 9, 17], left=left, images=images)
    seen = inputs["attention_mask"].bool()
    results = []
    for free in (False, True):
        model = vision_model(kind).train()
        if free:
            without_padding(model)
        logits = model(**inputs).logits
        logits[seen].log_softmax(-1)[:, 9].sum().backward()
        results.append((logits.detach()[seen], {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    (padded, expected), (free_logits, gradients) = results
    assert float((free_logits - padded).abs().max()) < 1e-5
    assert gradients.keys() == expected.keys()
    norm = float(torch.stack([value.norm() for value in expected.values()]).norm())
    assert max(float((gradients[name] - expected[name]).abs().max()) for name in expected) <= NEAR * norm


@pytest.mark.parametrize("kind", ["qwen3", "qwen2.5"])
def test_a_sample_sees_no_other(kind: str) -> None:
    """The others' texts and pictures change, and not a bit of its output does."""
    import torch

    from training.common.model.padding_free import without_padding

    model = vision_model(kind).eval()
    without_padding(model)
    first, other = batch([12, 20, 16]), batch([12, 20, 16], seed=1)
    patches = GRID[0] * GRID[1]
    mixed = {name: value.clone() for name, value in other.items()}
    mixed["input_ids"][1], mixed["pixel_values"][patches : 2 * patches] = (
        first["input_ids"][1],
        first["pixel_values"][patches : 2 * patches],
    )
    with torch.no_grad():
        ours, theirs = model(**first).logits, model(**mixed).logits
    assert torch.equal(ours[1], theirs[1])
    assert not torch.equal(ours[0], theirs[0])


@pytest.mark.parametrize("kind", ["qwen3", "qwen2.5"])
def test_padding_costs_nothing_and_no_mask_is_made(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.integrations import sdpa_attention

    from training.common.model.padding_free import without_padding

    model = vision_model(kind).train()
    without_padding(model)
    rows: list[int] = []
    lengths: list[int] = []
    text = model.model.language_model
    text.layers[1].mlp.register_forward_hook(
        lambda module, given, output: rows.append(output.shape[0] * output.shape[1])
    )
    attend = sdpa_attention.sdpa_attention_forward

    def noted(module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> Any:
        if module is text.layers[1].self_attn:
            assert mask is None
            lengths.append(query.shape[2])
        return attend(module, query, key, value, mask, **options)

    monkeypatch.setattr(sdpa_attention, "sdpa_attention_forward", noted)
    model(**batch([30, 9, 17]))
    assert rows == [30 + 9 + 17]
    assert lengths == [30, 9, 17]


def test_answers_are_sampled_as_before() -> None:
    """Generation pads on the left and keeps a cache."""
    import torch

    from training.common.model.padding_free import without_padding

    answers = []
    for free in (False, True):
        model = vision_model("qwen3").eval()
        if free:
            without_padding(model)
        inputs = batch([12, 20, 16], left=True)
        answers.append(model.generate(**inputs, max_new_tokens=8, do_sample=False, pad_token_id=0))
    assert torch.equal(*answers)


def test_flash_attention_is_told_where_each_sample_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """flash-attn needs a GPU; here an attention of the same interface stands in its place."""
    import torch
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    from training.common.model.padding_free import without_padding

    told: list[Any] = []

    def flash(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any) -> Any:
        told.append((attention_mask, options))
        return torch.zeros_like(query.transpose(1, 2)), None

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "flash_attention_2", flash)
    model = vision_model("qwen3").eval()
    model.model.language_model.config._attn_implementation = "flash_attention_2"
    without_padding(model)
    model(**batch([30, 9, 17]))
    for mask, options in told:
        assert mask is None
        assert options["cu_seq_lens_q"].tolist() == options["cu_seq_lens_k"].tolist() == [0, 30, 39, 56]
        assert options["cu_seq_lens_q"].dtype == torch.int32
        assert (options["max_length_q"], options["max_length_k"]) == (30, 30)
    assert len(told) == 2


def test_what_is_not_proved_is_refused() -> None:
    import torch

    from training.common.model.padding_free import without_padding

    eager = vision_model("qwen3")
    eager.model.language_model.config._attn_implementation = "eager"
    with pytest.raises(ConfigError, match="padding_free: attention eager would let samples see one another"):
        without_padding(eager)
    with pytest.raises(ConfigError, match=r"padding_free: Linear has no language model .* allowed: Qwen2\.5-VL and"):
        without_padding(torch.nn.Linear(2, 2))
    sliding = vision_model("qwen2.5", use_sliding_window=True, max_window_layers=1, sliding_window=8)
    with pytest.raises(ConfigError, match="padding_free: this model has layers with a sliding window"):
        without_padding(sliding)


@pytest.fixture(scope="module")
def material() -> tuple[Path, Path, Path]:
    """(pairs, model, episodes)"""
    root = preference.material()
    return root / "pairs", root / "model", root / "episodes"


def assert_same(make: Any) -> None:
    """The gradient of the first step with padding and without it."""
    import torch

    (padded, loss), (free, told) = gradient(make(False)), gradient(make(True))
    norm = float(torch.stack([value.norm() for value in padded.values()]).norm())
    assert norm > 0
    assert free.keys() == padded.keys()
    assert max(float((free[name] - padded[name]).abs().max()) for name in padded) <= NEAR * norm
    assert told == pytest.approx(loss, rel=1e-5, abs=1e-6)


CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"lora": LoraConfig(rank=4, alpha=8)},
    "checkpointing": {"activation_checkpointing": True},
    "accumulating": {"batch_size": 3, "accumulate": 2},
}


@pytest.mark.parametrize("case", CASES)
def test_sft(material: tuple[Path, Path, Path], tmp_path: Path, case: str) -> None:
    def make(free: bool) -> Any:
        values = {"batch_size": 6, **COMMON, **CASES[case]}
        config = sft.SftConfig(model=str(material[1]), episodes=".", padding_free=free, **values)
        return sft.make_trainer(config, chats(), tmp_path / str(free))

    assert_same(make)


def test_tokens_are_counted_as_with_padding(material: tuple[Path, Path, Path], tmp_path: Path) -> None:
    counts = []
    for free in (False, True):
        config = sft.SftConfig(model=str(material[1]), episodes=".", padding_free=free, batch_size=6, **COMMON)
        trainer = sft.make_trainer(config, chats(), tmp_path / str(free))
        trainer.train()
        counts.append(trainer._total_train_tokens)
    assert counts[0] == counts[1] > 6 * 16


@pytest.mark.nightly
@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4, alpha=8)], ids=["full", "lora"])
def test_dpo(material: tuple[Path, Path, Path], tmp_path: Path, lora: LoraConfig | None) -> None:
    def make(free: bool) -> Any:
        config = dpo.DpoConfig(
            model=str(material[1]), pairs=str(material[0]), prompt=preference.PROMPT, batch_size=4, padding_free=free,
            lora=lora, **COMMON,
        )  # fmt: skip
        return dpo.make_trainer(config, read_pairs(material[0], "train")[:4], tmp_path / str(free))

    assert_same(make)


@pytest.mark.nightly
def test_reward(material: tuple[Path, Path, Path], tmp_path: Path) -> None:
    def make(free: bool) -> Any:
        config = reward.RewardConfig(
            model=str(material[1]), pairs=str(material[0]), batch_size=4, padding_free=free, **COMMON
        )
        return reward.make_trainer(config, read_pairs(material[0], "train")[:4], tmp_path / str(free))

    assert_same(make)


@pytest.mark.nightly
def test_grpo(material: tuple[Path, Path, Path], tmp_path: Path) -> None:
    def make(free: bool) -> Any:
        config = GrpoConfig(
            model=str(material[1]), data=str(material[2]), prompt=preference.PROMPT, beta=0.1, num_generations=2,
            rewards=[RewardSpec(name="tests.integration.training.test_accumulate:variety")], max_completion=12,
            batch_size=6, padding_free=free, **COMMON,
        )  # fmt: skip
        rewards, faults = load_rewards(config.rewards), Faults()
        opened = open_source(config.data, config.prompt.builder(), faults)
        trainer = grpo.make_trainer(config, rewards, Prompts(opened, rewards, faults), tmp_path / str(free))
        sample = trainer._generate_single_turn

        def cut(ids: Any, *rest: Any, **options: Any) -> Any:
            """Answers of different lengths, which a random model does not give by itself."""
            answers, logprobs = sample(ids, *rest, **options)
            return [answer[: 1 + 2 * number] for number, answer in enumerate(answers)], logprobs

        trainer._generate_single_turn = cut
        return trainer

    assert_same(make)
