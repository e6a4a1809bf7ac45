"""Chats as tokens and batches of a Qwen-VL model, with labels on the assistant's tokens. Imports torch.

The labels come from rendering the chat up to each assistant turn, so they also work with versions of TRL without an
assistant-only loss (Unsloth's).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from jinja2 import TemplateError
from PIL import Image
from torch import Tensor

from eval.config import ConfigError
from eval.prompts.tokens import joined
from training.data.faults import BadSample

IGNORED: Final = -100  # the label of a token without loss
MARK: Final = "\ufdd0"  # a noncharacter in the place of the `<` that would begin a control token


@dataclass(frozen=True)
class TokenizedChat:
    """A chat as tokens, one placeholder per image: `ids` int32 (length,), `learnt` bool (length,)."""

    ids: Tensor
    learnt: Tensor


class Chats:
    """Turns chats into tokens and labels with a processor of the Qwen-VL family. Raises ConfigError for another.

    Control tokens come from the chat template, images, and `control` (those of the dialect's answers) alone: one that a
    text spells otherwise becomes ordinary tokens, which decode to the same text.
    """

    def __init__(self, processor: Any, control: Collection[str] = ()) -> None:
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.images = processor.image_processor
        image = getattr(processor, "image_token_id", None)
        if image is None or not hasattr(self.images, "get_number_of_image_patches"):
            raise ConfigError(f"model: {type(processor).__name__} is no processor of the Qwen-VL family")
        self.image: int = image
        self.merge: int = self.images.merge_size**2  # patches per token
        added = self.tokenizer.added_tokens_decoder.values()
        special = {str(token) for token in added if token.special} | set(self.tokenizer.all_special_tokens)
        if odd := sorted(token for token in special if not token.startswith("<")):
            raise ConfigError(f"model: its control token {odd[0]!r} does not begin with '<'")
        self.special = _any_of(special)
        self.foreign = _any_of(special - set(control))  # literal text where a message spells one

    def text(self, messages: Sequence[Mapping[str, Any]], *, answer_only: bool = False) -> TokenizedChat:
        """A chat's tokens, with loss on each assistant turn and its end token, or on the last turn only.

        Raises BadSample.
        """
        chat = [self._parts(message) for message in messages]
        asked = next((turn["role"] for turn in chat if turn["role"] != "system"), None)
        if asked == "assistant":
            raise BadSample("no_question", "a chat that begins with the assistant's turn")
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
        numbers, offsets = self._encoded(whole)
        ids = torch.tensor(numbers, dtype=torch.int32)
        first, last = torch.tensor(offsets, dtype=torch.int64).reshape(-1, 2).unbind(1)
        learnt = torch.zeros(len(ids), dtype=torch.bool)
        for start, end in spans:
            learnt |= (first < end) & (last > start)
        return TokenizedChat(ids, learnt)

    def _render(self, chat: list[dict[str, Any]], asked: bool = False) -> str:
        """Raises BadSample for turns in an order that the chat template does not know."""
        try:
            return str(self.processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=asked))
        except TemplateError as error:
            raise BadSample("chat_template", f"the model's chat template refuses the turns: {error}") from None

    def _parts(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message with parts, the first character of each foreign control token replaced by a mark of its own.

        Raises BadSample for a text that holds such a mark, or a lone surrogate, which no tokenizer can read.
        """
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return {
            **message,
            "content": [
                {**part, "text": _marked(part["text"], self.foreign)} if "text" in part else part
                for part in joined(parts)
            ],
        }

    def _encoded(self, whole: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of a rendered chat, and the characters (first, after the last) that each stands for."""
        if MARK not in whole:
            encoded = self.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
            return encoded["input_ids"], encoded["offset_mapping"]
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        start = 0
        for found in (*self.special.finditer(whole), None):
            end = len(whole) if found is None else found.start()
            piece = self.tokenizer(
                whole[start:end].replace(MARK, "<"),
                add_special_tokens=False,
                split_special_tokens=True,
                return_offsets_mapping=True,
            )
            ids += piece["input_ids"]
            offsets += [(first + start, last + start) for first, last in piece["offset_mapping"]]
            if found is not None:
                ids.append(self.tokenizer.convert_tokens_to_ids(found[0]))
                offsets.append(found.span())
                start = found.end()
        return ids, offsets

    def tokens(self, size: tuple[int, int]) -> int:
        """Number of tokens of an image of this width and height. Raises BadSample for one that has none."""
        try:
            return int(self.images.get_number_of_image_patches(size[1], size[0])) // self.merge
        except ValueError as error:
            raise BadSample("image_size", f"{size[0]}x{size[1]}: {error}") from None

    def length(self, messages: Sequence[Mapping[str, Any]], sizes: Sequence[tuple[int, int]]) -> int:
        """Tokens of a chat whose images have these sizes (width, height). Does not look at the images."""
        ids, _ = self._encoded(self._render([self._parts(message) for message in messages]))
        return len(ids) - len(sizes) + sum(map(self.tokens, sizes))

    def check(self, text: TokenizedChat, images: Sequence[Image.Image], max_length: int | None) -> None:
        """Raises BadSample for a chat whose images do not fit its text, or that is too long."""
        places = int((text.ids == self.image).sum())
        if places != len(images):
            raise BadSample("images_do_not_fit", f"{places} places for {len(images)} images")
        length = len(text.ids) - places + sum(self.tokens(image.size) for image in images)
        if max_length is not None and length > max_length:
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


def _any_of(tokens: Collection[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or r"(?!)")


def _marked(text: str, foreign: re.Pattern[str]) -> str:
    """Raises BadSample."""
    if MARK in text:
        raise BadSample("noncharacter", f"a text holds U+{ord(MARK):X}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadSample("surrogate", f"a text holds half a character: {error.object[error.start]!a}") from None
    return foreign.sub(lambda found: MARK + found[0][1:], text)
