"""What vLLM is asked is what is trained on: images by one placeholder each, and the ids that it ran compared with ours.

vLLM expands an image's placeholder itself, by the bounds of an image's area that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eval.config import ConfigError


def one_placeholder(ids: Sequence[int], image_token: int, images: int, field: str = "generation") -> list[int]:
    """The prompt with one image token for each image, in place of a run of them.

    Raises ConfigError when the number of runs is not the number of images; `field` begins its text.
    """
    short: list[int] = []
    runs = 0
    for place, token in enumerate(ids):
        if token == image_token:
            if place and ids[place - 1] == image_token:
                continue
            runs += 1
        short.append(token)
    if runs != images:
        raise ConfigError(f"{field}: a prompt with {images} images has {runs} runs of image tokens")
    return short


def check_prompt_ids(
    ours: Sequence[int], ran: Sequence[int] | None, image_token: int, who: str, field: str = "generation"
) -> None:
    """Raises ConfigError unless the ids that a sampler ran are the trainer's; `who` names the sampler in the text."""
    if ran is not None and list(ours) == list(ran):
        return
    if ran is None:
        raise ConfigError(f"{field}: {who} does not tell which prompt it ran, so nothing proves that it is ours")
    here, there = (sum(token == image_token for token in ids) for ids in (ours, ran))
    raise ConfigError(
        f"{field}: {who} reads a prompt as {len(ran)} tokens ({there} of images), the trainer as {len(ours)} "
        f"({here} of images): it needs the same processor, chat template and max_pixels"
    )


def processor_bounds(processor: Any) -> dict[str, int]:
    """The bounds of an image's area in pixels, as vLLM's mm_processor_kwargs; those of the trainer's processor."""
    size = processor.image_processor.size
    return {"min_pixels": int(size["shortest_edge"]), "max_pixels": int(size["longest_edge"])}


def revisions(revision: str | None) -> dict[str, str]:
    """vLLM's arguments for a model's revision: TRL gives it the name alone, which means the newest one."""
    return {} if revision is None else {"revision": revision, "tokenizer_revision": revision}
