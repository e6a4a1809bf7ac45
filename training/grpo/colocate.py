"""vLLM in the trainer's process (`generation: {backend: vllm, mode: colocate}`): its prompts are proved to be ours.

TRL 1.16 gives vLLM token ids in which each image already has all its tokens. vLLM takes the first of them for the
image's placeholder and expands it once more: the model samples from another prompt than the one that is trained on.
vLLM also reads the bounds of an image's area from the model's folder and not from the trainer's processor. Here each
image is one placeholder again, vLLM gets the trainer's bounds and revision, and the ids that vLLM ran are compared with
the trainer's for each prompt.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from eval.config import ConfigError
from training.common.vllm_prompts import check_prompt_ids, one_placeholder
from training.data.faults import BadSample
from training.data.samples import Sample, open_images
from training.grpo.prompts import Prompts

LOOKED_AT: Final = 64  # prompts that are tokenized to know how long they are
ROUND: Final = 64  # the context is a multiple of it


class CheckedEngine:
    """A vllm.LLM whose prompts TRL made: sends each image as one placeholder, and compares what vLLM ran.

    engine       the vllm.LLM; what is not defined here is its own
    image_token  id of the model's image token
    context      tokens of prompt and answer that the engine takes
    answer       tokens of an answer at most
    """

    def __init__(self, engine: Any, image_token: int, context: int, answer: int) -> None:
        self.engine = engine
        self.image_token = image_token
        self.context = context
        self.answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def generate(self, prompts: Sequence[Mapping[str, Any]], **options: Any) -> list[Any]:
        """Raises ConfigError for a prompt that is too long, or that vLLM ran with other ids."""
        outputs: list[Any] = self.engine.generate([self._sent(prompt) for prompt in prompts], **options)
        for prompt, output in zip(prompts, outputs, strict=True):
            check_prompt_ids(prompt["prompt_token_ids"], output.prompt_token_ids, self.image_token, "vLLM")
        return outputs

    def _sent(self, prompt: Mapping[str, Any]) -> dict[str, Any]:
        ids = prompt["prompt_token_ids"]
        if len(ids) + self.answer > self.context:
            raise ConfigError(
                f"generation.context: {self.context} tokens are too few for a prompt of {len(ids)} and an answer of "
                f"{self.answer}: set it to {_rounded(len(ids) + self.answer)} at least"
            )
        images = prompt.get("multi_modal_data", {}).get("image", [])
        count = len(images) if isinstance(images, list) else 1
        return {**prompt, "prompt_token_ids": one_placeholder(ids, self.image_token, count)}


@contextmanager
def engine_options(**options: Any) -> Iterator[None]:
    """While it is open, TRL makes its vllm.LLM with these arguments as well; TRL has no argument for them."""
    from trl.generation import vllm_generation

    theirs = vllm_generation.LLM
    vllm_generation.LLM = functools.partial(theirs, **options)
    try:
        yield
    finally:
        vllm_generation.LLM = theirs


def context_for(prompts: Prompts, processor: Any, answer: int, most: int | None) -> int:
    """Tokens that vLLM has to make room for: the longest prompt, a tenth more, and an answer; `most` at most.

    The longest of up to 64 prompts, evenly spread, is measured; CheckedEngine refuses one that is longer.
    """
    longest = 0
    for index in range(0, len(prompts), max(1, len(prompts) // LOOKED_AT)):
        try:
            longest = max(longest, prompt_length(prompts[index], processor))
        except BadSample:
            continue  # `on_bad_sample` decides about it when its turn comes
    wanted = _rounded(longest + longest // 10 + answer)
    return wanted if most is None else min(wanted, most)


def prompt_length(sample: Sample, processor: Any) -> int:
    """Tokens of a sample's prompt, images included."""
    text = processor.apply_chat_template(sample.messages[:-1], tokenize=False, add_generation_prompt=True)
    return len(processor(text=[text], images=open_images(sample))["input_ids"][0])


def _rounded(tokens: int) -> int:
    return -(-tokens // ROUND) * ROUND
