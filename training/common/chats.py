"""Chats as tokens and batches of a Qwen-VL model, with labels on the assistant's tokens. Imports torch.

The labels come from rendering the chat up to each assistant turn, so they also work with versions of TRL without an
assistant-only loss (Unsloth's).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from PIL import Image
from torch import Tensor

from eval.config import ConfigError
from training.data.faults import BadSample

IGNORED: Final = -100  # the label of a token without loss


@dataclass(frozen=True)
class TokenizedChat:
    """A chat as tokens, one placeholder per image: `ids` int32 (length,), `learnt` bool (length,)."""

    ids: Tensor
    learnt: Tensor


class Chats:
    """Turns chats into tokens and labels with a processor of the Qwen-VL family. Raises ConfigError for another."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.images = processor.image_processor
        image = getattr(processor, "image_token_id", None)
        if image is None or not hasattr(self.images, "get_number_of_image_patches"):
            raise ConfigError(f"model: {type(processor).__name__} is no processor of the Qwen-VL family")
        self.image: int = image
        self.video: int | None = getattr(processor, "video_token_id", None)
        self.merge: int = self.images.merge_size**2  # patches per token

    def text(self, messages: Sequence[Mapping[str, Any]], *, answer_only: bool = False) -> TokenizedChat:
        """A chat's tokens, with loss on each assistant turn and its end token, or on the last turn only.

        Raises BadSample.
        """
        chat = [_parts(message) for message in messages]
        whole = self._render(chat)
        spans = []
        for number, message in enumerate(chat):
            if message["role"] == "assistant":
                before = self._render(chat[:number], asked=True)
                after = whole if number + 1 == len(chat) else self._render(chat[: number + 1])
                if not (whole.startswith(after) and after.startswith(before)):
                    raise ConfigError("model: its chat template shows a turn otherwise once others follow it")
                spans.append((len(before), len(after)))
        if answer_only:
            spans = spans[-1:]
        if not spans:
            raise BadSample("no_answer", "a chat without an assistant's turn")
        encoded = self.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
        ids = torch.tensor(encoded["input_ids"], dtype=torch.int32)
        first, last = torch.tensor(encoded["offset_mapping"], dtype=torch.int64).reshape(-1, 2).unbind(1)
        learnt = torch.zeros(len(ids), dtype=torch.bool)
        for start, end in spans:
            learnt |= (first < end) & (last > start)
        return TokenizedChat(ids, learnt)

    def _render(self, chat: list[dict[str, Any]], asked: bool = False) -> str:
        return str(self.processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=asked))

    def tokens(self, size: tuple[int, int]) -> int:
        """Number of tokens of an image of this width and height."""
        return int(self.images.get_number_of_image_patches(size[1], size[0])) // self.merge

    def length(self, messages: Sequence[Mapping[str, Any]], sizes: Sequence[tuple[int, int]]) -> int:
        """Tokens of a chat whose images have these sizes (width, height). Does not look at the images."""
        text = self._render([_parts(message) for message in messages])
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return len(ids) - len(sizes) + sum(map(self.tokens, sizes))

    def check(self, text: TokenizedChat, images: Sequence[Image.Image], max_length: int | None) -> None:
        """Raises BadSample for a chat whose images do not fit its text, or that is too long."""
        places = int((text.ids == self.image).sum())
        if places != len(images):
            raise BadSample("images_do_not_fit", f"{places} places for {len(images)} images")
        if self.video is not None and bool((text.ids == self.video).any()):
            raise BadSample("video_token", "the text holds the placeholder of a video")
        if max_length is not None:
            length = len(text.ids) - places + sum(self.tokens(image.size) for image in images)
            if length > max_length:
                raise BadSample("too_long", f"{length} tokens; max_length is {max_length}, nothing is cut off")

    def batch(self, texts: Sequence[TokenizedChat], images: Sequence[Sequence[Image.Image]]) -> dict[str, Tensor]:
        """(batch, length) input_ids, attention_mask, mm_token_type_ids and labels, padded on the right; with images
        also pixel_values (patches, values) and image_grid_thw (images, 3)."""
        flat = [image for some in images for image in some]
        pixels: dict[str, Tensor] = dict(self.images(flat, return_tensors="pt")) if flat else {}
        counts = pixels["image_grid_thw"].prod(-1) // self.merge if flat else None
        ids, labels, first = [], [], 0
        for text, some in zip(texts, images, strict=True):
            spread, learnt = text.ids.long(), text.learnt
            if some:
                assert counts is not None
                times = torch.ones(len(spread), dtype=torch.int64)
                times[spread == self.image] = counts[first : first + len(some)]
                spread, learnt = spread.repeat_interleave(times), learnt.repeat_interleave(times)
                first += len(some)
            ids.append(spread)
            labels.append(spread.where(learnt, IGNORED))
        pad = torch.nn.utils.rnn.pad_sequence
        inputs = {
            "input_ids": pad(ids, True, self.tokenizer.pad_token_id),
            "attention_mask": pad([torch.ones_like(sequence) for sequence in ids], True, 0),
            "labels": pad(labels, True, IGNORED),
            **pixels,
        }
        if "mm_token_type_ids" in self.processor.model_input_names:
            inputs["mm_token_type_ids"] = pad([(sequence == self.image).long() for sequence in ids], True, 0)
        return inputs


def _parts(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message["content"]
    return {**message, "content": [{"type": "text", "text": content}] if isinstance(content, str) else content}
