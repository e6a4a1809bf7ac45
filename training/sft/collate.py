"""Turns samples into batches of a Qwen-VL model, with the loss on the assistant's tokens only.

Does not need TRL; a test shows that the batches are bit-identical to TRL's. Tokens and decoded images are cached
between epochs, within a budget of bytes; pixel values are computed each time, because they are many times larger than
the image.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import torch
from PIL import Image
from torch import Tensor

from eval.config import ConfigError
from training.common.chats import IGNORED, Chats, TokenizedChat
from training.data.faults import BadSample, Faults
from training.data.samples import Sample, open_images

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


class Collator:
    """Called with rows that hold the `index` of their sample; returns their batch.

    max_length  of a sample in tokens; a longer sample is bad
    faults      policy for bad samples: the first ends the training, or each is counted and replaced by the next good
                sample in order; the replacement depends only on the index
    report      a file with a line per bad sample, from all processes
    control     the control tokens of the dialect's answers; others are literal text
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
        control: Collection[str] = (),
    ) -> None:
        self.chats = Chats(processor, control)
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
        count = len(self.samples)
        for step in range(count):
            number = index - index % count + (index + step) % count  # within its epoch: a mixture's later ones go on
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
            text = self.chats.text(sample.messages, answer_only=sample.answer_only or sample.step is not None)
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
