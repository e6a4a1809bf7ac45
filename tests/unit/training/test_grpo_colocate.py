"""vLLM in the trainer's process: which prompt it runs, how long a prompt it takes, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval.config import ConfigError
from training.common.vllm_prompts import check_prompt_ids, one_placeholder, revisions
from training.grpo.colocate import CheckedEngine, engine_options

IMAGE, START, END = 151655, 151652, 151653
PATCHES = 475  # tokens of one image: those of issue 14's measurement


@dataclass
class Output:
    prompt_token_ids: list[int] | None


class ExpandingEngine:
    """Does with a prompt what vLLM 0.31 does (BaseMultiModalProcessor._apply_prompt_updates): the first image token
    that is left becomes all the tokens of the next image. In tests/integration/training/test_colocate.py is vLLM
    itself."""

    def __init__(self, tokens: int = PATCHES) -> None:
        self.tokens = tokens
        self.sent: list[int] = []

    def generate(self, prompts: Sequence[dict[str, Any]], **options: Any) -> list[Output]:
        outputs = []
        for prompt in prompts:
            ids = list(prompt["prompt_token_ids"])
            self.sent.append(ids.count(IMAGE))
            images = prompt.get("multi_modal_data", {}).get("image", [])
            at = 0
            for _ in images if isinstance(images, list) else [images]:
                at = ids.index(IMAGE, at)
                ids[at : at + 1] = [IMAGE] * self.tokens
                at += self.tokens
            outputs.append(Output(ids))
        return outputs


def prompt(images: int, tokens: int = PATCHES) -> dict[str, Any]:
    """As TRL 1.16 makes it: all tokens of each image, and the images (one alone is in no list)."""
    ids = [1]
    for number in range(images):
        ids += [START, *[IMAGE] * tokens, END, 7 + number]
    pictures: Any = [f"image {number}" for number in range(images)]
    given = {"multi_modal_data": {"image": pictures if images > 1 else pictures[0]}} if images else {}
    return {"prompt_token_ids": ids, **given}


def checked(engine: Any, context: int = 4096, answer: int = 64) -> CheckedEngine:
    return CheckedEngine(engine, IMAGE, context, answer)


def test_without_the_check_vllm_runs_nearly_twice_the_image_tokens() -> None:
    (output,) = ExpandingEngine().generate([prompt(1)])
    assert output.prompt_token_ids is not None
    assert output.prompt_token_ids.count(IMAGE) == 949  # as issue 14 measured


@pytest.mark.parametrize("images", [0, 1, 2, 3])
def test_vllm_runs_the_trainer_s_prompt(images: int) -> None:
    engine = ExpandingEngine()
    given = prompt(images)
    (output,) = checked(engine).generate([given], sampling_params=None, use_tqdm=False)
    assert engine.sent == [images]
    assert output.prompt_token_ids == given["prompt_token_ids"]
    assert given["prompt_token_ids"].count(IMAGE) == images * PATCHES  # what TRL trains on is not touched


def test_images_of_another_size_than_the_trainer_s_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"vLLM reads .* \(400 of images\), the trainer .* \(475 of images\)"):
        checked(ExpandingEngine(400)).generate([prompt(1)])


def test_a_sampler_that_does_not_tell_what_it_ran_is_refused() -> None:
    with pytest.raises(ConfigError, match="the server does not tell which prompt it ran"):
        check_prompt_ids([1, 2], None, IMAGE, "the server")
    with pytest.raises(ConfigError, match="the server reads a prompt as 2 tokens"):
        check_prompt_ids([1, 2], [1, 3], IMAGE, "the server")  # as long, and another
    check_prompt_ids([1, 2], [1, 2], IMAGE, "the server")


def test_images_without_a_run_of_their_own_are_refused() -> None:
    with pytest.raises(ConfigError, match="a prompt with 2 images has 1 runs of image tokens"):
        one_placeholder([IMAGE] * 8, IMAGE, 2)


def test_a_prompt_that_does_not_fit_is_one_line_with_the_field_and_a_value_that_fits() -> None:
    engine = ExpandingEngine()
    with pytest.raises(ConfigError, match=r"generation\.context: 512 tokens are too few .* set it to 576 at least"):
        checked(engine, context=512, answer=64).generate([prompt(1)])
    assert checked(engine, context=576, answer=64).generate([prompt(1)])


def test_what_else_trl_asks_of_the_engine_is_the_engine_s() -> None:
    class Engine(ExpandingEngine):
        def reset_prefix_cache(self) -> str:
            return "reset"

    assert checked(Engine()).reset_prefix_cache() == "reset"


@pytest.mark.ml
def test_trl_makes_the_engine_with_our_arguments_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's own constructor of the engine, up to vLLM's class: the bounds and the revision reach it, TRL's stay."""
    from trl.generation import vllm_generation

    made: list[dict[str, Any]] = []

    def engine(**options: Any) -> object:
        made.append(options)
        return object()

    monkeypatch.setattr(vllm_generation, "LLM", engine, raising=False)
    monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda: True)
    monkeypatch.setattr(vllm_generation, "ensure_master_addr_port", lambda: None)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "0")  # TRL sets them; this takes them back
    accelerator = SimpleNamespace(
        num_processes=1, process_index=0, local_process_index=0, wait_for_everyone=lambda: None, state=None
    )
    monkeypatch.setattr(vllm_generation, "DistributedBackend", lambda _: None)
    model = SimpleNamespace(name_or_path="Qwen/Qwen3-VL-8B-Instruct", named_modules=lambda: [])
    ours = {"mm_processor_kwargs": {"max_pixels": 921600}, **revisions("0123abc")}
    for options in (ours, {}):
        with engine_options(**options):
            vllm_generation.VLLMGeneration(model, accelerator, None, max_model_length=2048)
    assert vllm_generation.LLM is engine
    assert made[0] == {**made[1], **ours}
    assert made[0]["revision"] == made[0]["tokenizer_revision"] == "0123abc"
    assert (made[1]["model"], made[1]["max_model_len"]) == ("Qwen/Qwen3-VL-8B-Instruct", 2048)
    assert revisions(None) == {}


@pytest.mark.ml
def test_room_is_made_for_the_longest_prompt_and_an_answer(tmp_path: Path) -> None:
    from tests.integration.training import clicks
    from training.common.model.loading import load_processor
    from training.common.vllm_prompts import processor_bounds
    from training.data.faults import Faults
    from training.data.source import open_source
    from training.grpo.colocate import context_for
    from training.grpo.prompts import Prompts
    from training.tiny import TinyConfig, build

    episodes = clicks.episodes(32)
    build(TinyConfig(episodes=str(episodes), prompt=clicks.PROMPT), tmp_path / "model")
    samples = open_source(str(episodes), clicks.PROMPT.builder())
    prompts = Prompts(samples, [], Faults("fail"))
    lengths = []
    for bound in (None, 32 * 32):
        processor = load_processor(str(tmp_path / "model"), bound)
        if bound is not None:
            assert processor_bounds(processor)["max_pixels"] == bound
        # TRL's own way: the chat template with the images in
        rows = prompts.rows({"number": range(len(prompts))})
        longest = 0
        for messages, images in zip(rows["prompt"], rows["images"], strict=True):
            left = list(images)
            filled = []
            for turn in messages:
                parts = [
                    {**part, "image": left.pop(0)} if part["type"] == "image" else part for part in turn["content"]
                ]
                filled.append({**turn, "content": parts})
            ids = processor.apply_chat_template([filled], tokenize=True, return_dict=True, add_generation_prompt=True)
            longest = max(longest, len(ids["input_ids"][0]))
        context = context_for(prompts, processor, 8, None)
        assert longest + 8 <= context <= longest * 1.1 + 8 + 64
        lengths.append(longest)
        assert context_for(prompts, processor, 8, 50) == 50
    assert lengths[0] - lengths[1] == 12  # 64x64 pixels are 16 tokens of 16x16; 32x32 are 4
