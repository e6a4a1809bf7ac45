"""Held-out steps, as `eval.steps` asks for them and as a training is evaluated on them.

`data` is a folder of episode folders, or a packed dataset, of which `split` is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.actions.geometry import Box
from eval.agents.base import History
from eval.config import ConfigError
from eval.desktop import BadFrame, Expected, Observation
from eval.episodes import is_complete
from eval.prompts import PromptBuilder
from training.data.faults import BadSample, Faults, Policy
from training.data.packed.store import is_dataset, read_manifest
from training.data.samples import Sample, load


def check_source(data: str, split: str, field: str) -> None:
    """Raises ConfigError, which names `field`, when there is nothing to hold out: before a model is loaded."""
    folder = Path(data)
    if not folder.is_dir():
        raise ConfigError(f"{field}: there is no folder {data}")
    if is_dataset(folder):
        splits = read_manifest(folder).splits
        if split not in splits:
            hint = "" if set(splits) > {"train"} else "; `pack` holds episodes out with split: {validation: 0.1}"
            raise ConfigError(f"{field}: {data} has no split {split!r}; allowed: {', '.join(splits)}{hint}")
        if not splits[split].actions:
            raise ConfigError(f"{field}: split {split!r} of {data} holds no step with an action")
    elif not any(is_complete(path) for path in folder.iterdir()):
        raise ConfigError(f"{field}: {data} is neither a packed dataset nor a folder of episodes")


def open_held_out(data: str, split: str, builder: PromptBuilder, faults: Faults | None = None) -> Sequence[Sample]:
    """The samples of all held-out steps, in the order of episodes and steps. Raises ConfigError."""
    check_source(data, split, "data")
    if is_dataset(Path(data)):
        from training.data.packed.stream import PackedEpisodes, PackedSamples

        return PackedSamples(PackedEpisodes(Path(data), split), builder, faults or Faults())
    return load(Path(data), builder, faults)


@dataclass(frozen=True)
class SampleStep:
    """A sample as `eval.steps.HeldOutStep`."""

    sample: Sample

    @property
    def episode_id(self) -> str:
        assert self.sample.episode is not None
        return self.sample.episode.episode_id

    @property
    def index(self) -> int:
        assert self.sample.step is not None
        return self.sample.step.index

    @property
    def marks(self) -> Mapping[int, Box]:
        assert self.sample.step is not None
        return self.sample.step.marks

    @property
    def target(self) -> str:
        return self.sample.target

    @property
    def expected(self) -> Expected:
        assert self.sample.expected is not None
        return self.sample.expected

    @property
    def digest(self) -> str:
        """The first 16 digits of the sha256 of the recorded action and its box, before an answer's rounding."""
        step = self.sample.step
        assert step is not None
        action = step.action if step.expected is None else step.expected.action
        recorded = {
            "action": None if action is None else action.to_json(),
            "box": None if step.expected is None else step.expected.box,
        }
        return hashlib.sha256(json.dumps(recorded, sort_keys=True).encode(errors="surrogatepass")).hexdigest()[:16]

    def asked(self) -> tuple[Observation, History]:
        """Raises BadFrame."""
        try:
            return self.sample.asked()
        except BadSample as error:
            raise BadFrame(str(error)) from None


class SampleSteps(Sequence[SampleStep]):
    """Samples as held-out steps, each made when it is needed."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, at: Any) -> Any:
        return SampleSteps(self.samples[at]) if isinstance(at, slice) else SampleStep(self.samples[at])


def open_steps(
    data: str, split: str, builder: PromptBuilder, on_bad_sample: Policy
) -> tuple[SampleSteps, dict[str, Any]]:
    """(the steps, a report of the samples that were left out), for `eval.steps`. Raises ConfigError."""
    faults = Faults(on_bad_sample)
    samples = open_held_out(data, split, builder, faults)
    shown = builder.demonstration
    if shown is not None and shown.required and shown.rule != "none" and shown.share == 1:
        _require_demonstrations(samples, shown.rule, shown.folder or data)
    return SampleSteps(samples), faults.report()


def _require_demonstrations(samples: Sequence[Sample], rule: str, folder: str) -> None:
    """Raises ConfigError at the first sample without a demonstration."""
    for number in range(len(samples)):
        sample = samples[number]
        if not sample.demonstration.steps and sample.episode is not None:
            raise ConfigError(
                f"prompt.demonstration: {folder} holds no {rule} one for task {sample.episode.task_id}; "
                "required: false would ask without"
            )
