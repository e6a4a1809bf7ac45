"""Prompts for GRPO: samples without their answers, with the expected action; images are opened on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from eval.actions.dialects.registry import CONTROL_TOKENS
from eval.config import ConfigError
from eval.prompts.tokens import control_token
from training.data.faults import BadSample, Faults
from training.data.samples import Sample, open_images
from training.rewards.loading import Reward


def name_of(sample: Sample, index: int) -> str:
    """A sample's name in messages."""
    if sample.episode is None or sample.step is None:
        return f"sample {index}"
    return f"episode {sample.episode.episode_id} step {sample.step.index}"


class Prompts:
    """The samples that every reward can judge. `faults` counts the others, now or when an image is opened."""

    def __init__(self, samples: Sequence[Sample], rewards: Sequence[Reward], faults: Faults) -> None:
        """Raises ConfigError when no sample is left, or at the first bad sample under the policy `fail`."""
        self.found = samples
        self.faults = faults
        self.chosen: list[int] = []
        why: Counter[str] = Counter()
        for index in range(len(samples)):
            sample = samples[index]
            try:
                _check(sample, rewards)
            except BadSample as fault:
                why[str(fault)] += 1
                faults.bad(name_of(sample, index), fault)
            else:
                self.chosen.append(index)
        if not self.chosen:
            reasons = "; ".join(f"{reason} ({count} of {len(samples)})" for reason, count in why.most_common())
            raise ConfigError(f"data: no prompt can be used: {reasons}")

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, number: int) -> Sample:
        return self.found[self.chosen[number]]

    def rows(self, batch: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
        """A transform for `datasets`: {"number"} -> {"number", "prompt", "images"}, each prompt opened once.

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
        for further in range(len(self)):
            at = (number + further) % len(self)
            sample = self[at]
            try:
                return at, sample, open_images(sample)
            except BadSample as fault:
                self.faults.bad(name_of(sample, self.chosen[at]), fault)
        raise ConfigError("data: no prompt has images that can be opened")


def _check(sample: Sample, rewards: Sequence[Reward]) -> None:
    """Raises BadSample: a prompt that a reward cannot judge, without images, or with an image token in its text."""
    expected = sample.expected
    for reward in rewards:
        if (missing := reward.missing(expected)) is not None:
            raise BadSample("not_judgeable", f"reward {reward.label} needs {missing}")
    if not sample.images:
        raise BadSample("no_image", "a prompt without an image")
    for turn in sample.messages[:-1]:
        for part in turn["content"]:
            if token := control_token(part.get("text", ""), CONTROL_TOKENS):
                raise BadSample("special_token", f"the prompt's text holds {token}, a control token")
