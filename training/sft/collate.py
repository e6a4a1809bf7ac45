"""Turns samples into batches of a Qwen-VL model, with the loss on the assistant's tokens only.

Does not need TRL: the labels come from rendering the chat up to each assistant turn, so they also work with versions
without an assistant-only loss (Unsloth's). A test shows that the batches are bit-identical to TRL's. Tokens and decoded
images are cached between epochs, within a budget of bytes; pixel values are computed each time, because they are many
times larger than the image.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import torch
from PIL import Image
from torch import Tensor

from eval.config import ConfigError
from training.data.faults import BadSample, Faults
from training.data.samples import Sample, open_images

IGNORED: Final = -100  # the label of a token without loss
TEXTS: Final = 64 * 2**20  # bytes of tokens in the cache
PICTURES: Final = 256 * 2**20  # bytes of decoded images in the cache
T = TypeVar("T")


class Kept(Generic[T]):
    """A cache of the most recently used values, up to `room` bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.used = 0
        self.values: OrderedDict[int, tuple[T, int]] = OrderedDict()

    def get(self, key: int) -> T | None:
        kept = self.values.get(key)
        if kept is None:
            return None
        self.values.move_to_end(key)
        return kept[0]

    def put(self, key: int, value: T, size: int) -> None:
        if size > self.room:
            return
        self.used -= self.values.pop(key, (value, 0))[1]
        self.values[key] = (value, size)
        self.used += size
        while self.used > self.room:
            self.used -= self.values.popitem(last=False)[1][1]


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


class Collator:
    """Called with rows that hold the `index` of their sample; returns their batch.

    max_length  of a sample in tokens; a longer sample is bad
    faults      policy for bad samples: the first ends the training, or each is counted and replaced by the next good
                sample in order; the replacement depends only on the index
    report      a file with a line per bad sample, from all processes
    """

    def __init__(
        self,
        processor: Any,
        samples: Sequence[Sample],
        *,
        max_length: int | None = None,
        faults: Faults | None = None,
        report: Path | None = None,
        texts: int | None = None,
        pictures: int | None = None,
    ) -> None:
        self.chats = Chats(processor)
        self.samples = samples
        self.max_length = max_length
        self.faults = faults or Faults()
        self.report = report
        self.room = (TEXTS if texts is None else texts, PICTURES if pictures is None else pictures)
        self.texts: Kept[TokenizedChat] | None = None  # each worker process creates its own
        self.pictures: Kept[list[Image.Image]] | None = None
        self.bad: set[int] = set()

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Raises ConfigError."""
        self._settle()
        texts, images = zip(*(self._good(int(row["index"])) for row in rows), strict=True)
        return self.chats.batch(texts, images)

    def _settle(self) -> None:
        """Makes the caches; workers share the budget, and leave the process group, whose SIGTERM is the trainer's."""
        if self.texts is not None:
            return
        worker = torch.utils.data.get_worker_info()
        if worker is not None:
            os.setpgid(0, 0)  # a worker whose trainer is gone ends by itself within seconds
        share = 1 if worker is None else worker.num_workers
        self.texts, self.pictures = Kept(self.room[0] // share), Kept(self.room[1] // share)

    def _good(self, index: int) -> tuple[TokenizedChat, list[Image.Image]]:
        for step in range(len(self.samples)):
            number = (index + step) % len(self.samples)
            if number in self.bad:
                continue
            try:
                return self._load(number)
            except BadSample as fault:
                self.bad.add(number)
                self._tell(number, fault)
        raise ConfigError(
            f"data: not one of {len(self.samples)} samples can be used; see {self.report or 'the report'}"
        )

    def _load(self, index: int) -> tuple[TokenizedChat, list[Image.Image]]:
        """Raises BadSample."""
        assert self.texts is not None
        assert self.pictures is not None
        text, images = self.texts.get(index), self.pictures.get(index)
        if text is not None and images is not None:
            return text, images
        try:
            sample = self.samples[index]
        except ConfigError as error:  # a sequence's word for a sample that went bad after it was opened
            raise BadSample("unreadable", str(error)) from None
        if images is None:
            images = open_images(sample)
            self.pictures.put(index, images, 1024 + sum(image.width * image.height * 3 for image in images))
        if text is None:
            # A step's earlier turns are history: targets of their own samples, and not written as targets are.
            text = self.chats.text(sample.messages, answer_only=sample.step is not None)
            self.chats.check(text, images, self.max_length)
            self.texts.put(index, text, 1024 + 5 * len(text.ids))
        return text, images

    def _tell(self, index: int, fault: BadSample) -> None:
        where = f"sample {index}"
        try:
            sample = self.samples[index]
            if sample.episode is not None and sample.step is not None:
                where += f" ({sample.folder or sample.episode.episode_id}, step {sample.step.index})"
        except (BadSample, ConfigError):
            pass
        if self.report is not None:
            self.report.parent.mkdir(parents=True, exist_ok=True)
            line = {"index": index, "where": where, "reason": fault.reason, "detail": fault.detail}
            with self.report.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        self.faults.bad(where, fault)


def answer_tokens(batch: Mapping[str, Any]) -> dict[str, int]:
    """The tokens of a batch that have a loss: the first of a chat has none, because nothing predicts it."""
    return {"tokens": int((batch["labels"][:, 1:] != IGNORED).sum())}


def reported(report: Path) -> Faults:
    """The bad samples of a report, each once, whichever processes and tries met it."""
    faults, seen = Faults("skip"), set()
    for line in report.read_text(encoding="utf-8").splitlines() if report.exists() else []:
        entry = json.loads(line)
        if entry["index"] not in seen:
            seen.add(entry["index"])
            faults.bad(entry["where"], BadSample(entry["reason"], entry["detail"]))
    return faults
