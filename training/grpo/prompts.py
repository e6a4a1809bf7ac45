"""Prompts for GRPO: samples without their answers, with the expected action; images are opened on demand."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from eval.actions.dialects.registry import CONTROL_TOKENS
from eval.config import ConfigError
from eval.prompts.tokens import control_token, joined
from training.data.faults import BadSample, Faults
from training.data.mixture import Mixture
from training.data.samples import Sample, open_images
from training.rewards.loading import Reward


def name_of(sample: Sample, index: int) -> str:
    """A sample's name in messages."""
    if sample.episode is None or sample.step is None:
        return f"sample {index}"
    return f"episode {sample.episode.episode_id} step {sample.step.index}"


class Prompts:
    """The samples that every reward can judge. `faults` counts the others, now or when an image is opened.

    `len` is that of an epoch. The numbers go on after it: of a mixture prompt `len(prompts)` is the first one of its
    next part, of another source the first one again.
    """

    def __init__(self, samples: Sequence[Sample], rewards: Sequence[Reward], faults: Faults) -> None:
        """Raises ConfigError when no sample is left, or at the first bad sample under the policy `fail`."""
        self.found = samples
        self.rewards = rewards
        self.faults = faults
        self.mixture = samples if isinstance(samples, Mixture) else None
        self._places = array("q")  # of the prompts, in `found`
        self._seen = 0  # places that were looked at
        self._faults_of: dict[Any, BadSample | None] = {}  # of a mixture's items, which come again
        seen = [self._look() for _ in range(len(samples))]
        why = Counter(str(fault) for fault in seen if fault is not None)
        self._count = len(self._places)
        if not self._count:
            reasons = "; ".join(f"{reason} ({count} of {len(samples)})" for reason, count in why.most_common())
            raise ConfigError(f"data: no prompt can be used: {reasons}")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Sample:
        return self.found[self.position(number)]

    def position(self, number: int) -> int:
        """Of a prompt in `found`; in a mixture's later epochs beyond its length."""
        if self.mixture is None:
            return self._places[number % self._count]
        self.check(number + 1)
        return self._places[number]

    def item(self, number: int) -> Any:
        """What is the same wherever the same sample comes again."""
        return self._item(self.position(number))

    def check(self, count: int) -> None:
        """Looks for the first `count` prompts. Raises ConfigError at a bad sample under the policy `fail`."""
        while self.mixture and len(self._places) < count:
            self._look()

    def _item(self, place: int) -> Any:
        return self.mixture.position(place) if self.mixture else place

    def _look(self) -> BadSample | None:
        """Takes the next place's sample as a prompt, or gives what is wrong with it."""
        place, item = self._seen, self._item(self._seen)
        self._seen += 1
        if item in self._faults_of:
            fault = self._faults_of[item]
        else:
            sample = self.found[place]
            if (fault := _fault(sample, self.rewards)) is not None:
                self.faults.bad(name_of(sample, place), fault)
            if self.mixture:
                self._faults_of[item] = fault
        if fault is None:
            self._places.append(place)
        return fault

    def rows(self, batch: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
        """{"number"} -> {"number", "prompt", "images"}, each prompt opened once.

        A prompt with a broken image is replaced by the next good one.
        """
        opened: dict[int, tuple[int, Sample, list[Any]]] = {}
        for number in batch["number"]:
            if number not in opened:
                opened[number] = self._open(number)
        rows = [opened[number] for number in batch["number"]]
        return {
            "number": [number for number, _, _ in rows],
            "prompt": [sample.messages[:-1] for _, sample, _ in rows],
            "images": [images for _, _, images in rows],
        }

    def _open(self, number: int) -> tuple[int, Sample, list[Any]]:
        first = number - number % len(self)  # of the epoch
        for further in range(len(self)):
            at = first + (number + further) % len(self)
            sample = self[at]
            try:
                return at, sample, open_images(sample)
            except BadSample as fault:
                self.faults.bad(name_of(sample, self.position(at)), fault)
        raise ConfigError("data: no prompt has images that can be opened")


def _fault(sample: Sample, rewards: Sequence[Reward]) -> BadSample | None:
    """What is wrong: a prompt that a reward cannot judge, without images, or with an image token in its text."""
    expected = sample.expected
    for reward in rewards:
        if (missing := reward.missing(expected)) is not None:
            return BadSample("not_judgeable", f"reward {reward.label} needs {missing}")
    if not sample.images:
        return BadSample("no_image", "a prompt without an image")
    for turn in sample.messages[:-1]:
        for part in joined(turn["content"]):
            if token := control_token(part.get("text", ""), CONTROL_TOKENS):
                return BadSample("special_token", f"the prompt's text holds {token}, a control token")
    return None
