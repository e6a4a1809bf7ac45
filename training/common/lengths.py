"""Batches of samples of like length (`group_by_length`), so that little of a batch is padding. Imports torch.

The order of an epoch depends on seed, epoch and lengths alone, so a training that resumes goes on in the same order.
It is the usual compromise between order and chance: a random permutation is cut into windows, each window is sorted by
length and cut into groups, and the groups of a window come in random order. A group is what all processes take for one
forward pass, so that none waits for another's longer batch.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch.utils.data import Dataset, Sampler

from eval.config import ConfigError
from eval.desktop import BadFrame
from eval.episodes.images import image_size
from training.common.chats import Chats
from training.data.faults import BadSample
from training.data.pairs.store import Pairs
from training.data.samples import Sample

WINDOW: Final = 50  # groups that are sorted together, as many as in transformers' own sampler


class Lengths:
    """Lengths in tokens by index, those of images included; each is computed when it is asked for, and kept.

    Images are not decoded: their files' headers tell their sizes. What cannot be used has length 0; the collator
    reports it when its turn comes.
    """

    def __init__(self, compute: Callable[[int], int], count: int) -> None:
        self.compute = compute
        self._known = array("q", [-1]) * count

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, index: int) -> int:
        if index >= len(self):
            return self._length(index)  # of a mixture's later epoch
        if self._known[index] < 0:
            self._known[index] = self._length(index)
        return self._known[index]

    def _length(self, index: int) -> int:
        try:
            return self.compute(index)
        except (BadSample, BadFrame, ConfigError):
            return 0


def sample_lengths(chats: Chats, samples: Sequence[Sample]) -> Lengths:
    """Of a sample: its chat."""

    def length(index: int) -> int:
        sample = samples[index]
        return chats.length(sample.messages, [image_size(image) for image in sample.images])

    return Lengths(length, len(samples))


def pair_lengths(chats: Chats, pairs: Pairs) -> Lengths:
    """Of a preference pair: the prompt with the longer of its answers, because both are padded to one width."""

    def length(index: int) -> int:
        pair = pairs[index]
        sizes = [image_size(path) for path in pairs.images(pair)]
        answers = ({"role": "assistant", "content": text} for text in (pair.chosen, pair.rejected))
        return max(chats.length([*pair.prompt, answer], sizes) for answer in answers)

    return Lengths(length, len(pairs))


class InEpochs(Sampler[int]):
    """Indices of all samples once an epoch, in an order of each epoch's own. Every process makes the same one.

    count  of samples
    seed   and the epoch (`set_epoch`) decide the order
    fresh  the indices of an epoch follow those of the one before, as a mixture's do
    """

    def __init__(self, count: int, seed: int, *, fresh: bool) -> None:
        self.count = count
        self.seed = seed
        self.fresh = fresh
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def order(self) -> tuple[list[int], torch.Generator]:
        """The epoch's indices, and the chance that drew their order."""
        chance = torch.Generator()
        chance.manual_seed(self.seed * 1_000_003 + self.epoch)
        first = self.epoch * self.count if self.fresh else 0
        return [first + index for index in torch.randperm(self.count, generator=chance).tolist()], chance

    def __iter__(self) -> Iterator[int]:
        return iter(self.order()[0])


class GroupedByLength(InEpochs):
    """The order of `InEpochs` in groups of like length.

    length     of a sample by its index
    group      samples of a forward pass over all processes: batch size x processes. Within a group the longest come
               first, so neighbouring processes have the most alike
    """

    def __init__(self, length: Callable[[int], int], count: int, group: int, seed: int, *, fresh: bool = False) -> None:
        super().__init__(count, seed, fresh=fresh)
        self.length = length
        self.group = group

    def __iter__(self) -> Iterator[int]:
        order, chance = self.order()
        for first in range(0, self.count, self.group * WINDOW):
            window = order[first : first + self.group * WINDOW]
            longest_first = sorted(window, key=self.length, reverse=True)
            groups = len(longest_first) // self.group
            for number in torch.randperm(groups, generator=chance).tolist():
                yield from longest_first[number * self.group : (number + 1) * self.group]
            yield from longest_first[groups * self.group :]  # the epoch's last batch, which is not full


def group_by_length(trainer: Any, lengths: Lengths, seed: int, *, fresh: bool = False) -> None:
    """Makes a transformers Trainer take its samples in groups of like length."""
    group = trainer.args.train_batch_size * trainer.args.world_size
    order = GroupedByLength(lengths.__getitem__, len(lengths), group, seed, fresh=fresh)
    trainer._get_train_sampler = lambda dataset=None: order


class SampleRows(Dataset[dict[str, int]]):
    """`{"index"}` of any index, those of a mixture's later epochs too; as long as one epoch."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, int]:
        return {"index": index}


def take_epochs(trainer: Any, count: int, seed: int) -> None:
    """Makes a transformers Trainer take a mixture's next part in each epoch."""
    trainer.train_dataset = SampleRows(count)
    order = InEpochs(count, seed, fresh=True)
    trainer._get_train_sampler = lambda dataset=None: order
