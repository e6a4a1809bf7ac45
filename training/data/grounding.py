"""Grounding samples from episodes: where on the screen is what a step says it acts on?

Each step that points at a place and says in words what it does is asked alone: those words are the goal, nothing came
before, and the answer is its action without a thought. The words are the answer's section `## Action`, as OpenCUA's
data has it, else the last line of the step's thought.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import overload

import msgspec

from eval.config import ConfigError
from eval.episodes import Episode, Step
from eval.prompts import PromptBuilder
from eval.prompts.demonstrations import FrameOf
from training.data.faults import BadSample
from training.data.ingest.cot import parse
from training.data.ingest.tally import Lost
from training.data.packed.stream import PackedSamples
from training.data.samples import Sample, step_sample


class GroundingSamples(Sequence[Sample]):
    """`inner`: the samples of the episodes. Raises ConfigError where none of them says what it points at."""

    def __init__(self, inner: Sequence[Sample], builder: PromptBuilder, where: str) -> None:
        self.inner = inner
        self.builder = builder
        self.places = array("Q", (at for at, step in enumerate(_steps(inner)) if named_element(step) is not None))
        if not self.places:
            raise ConfigError(
                f"data: {where}: no step says in words what it points at (a thought, or a section ## Action): nothing "
                "of it is grounding"
            )

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, at: int) -> Sample: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Sample]: ...
    def __getitem__(self, at: int | slice) -> Sample | Sequence[Sample]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        sample = self.inner[self.places[at]]
        assert sample.episode is not None
        assert sample.step is not None
        assert sample.frame is not None
        return grounding_sample(sample.episode, sample.step, self.builder, sample.frame)


def _steps(inner: Sequence[Sample]) -> Iterator[Step]:
    """The step of each sample; an episode of a packed dataset is decoded once."""
    if not isinstance(inner, PackedSamples):
        for sample in inner:
            assert sample.step is not None
            yield sample.step
        return
    last, steps = -1, tuple[Step, ...]()
    for number, index in zip(inner.numbers, inner.steps, strict=True):
        if int(number) != last:
            last, steps = int(number), inner.episodes.episode(int(number))[0].steps
        yield steps[int(index)]


def named_element(step: Step) -> str | None:
    """What a step says that it does; None where it says nothing, points nowhere, or does more than one thing."""
    if step.action is None or step.action.point is None or step.further_actions:
        return None
    if step.response is not None:
        try:
            if said := parse(step.response).action:
                return said
        except Lost:
            pass  # no sections
    lines = [line.strip() for line in (step.thought or "").splitlines() if line.strip()]
    return lines[-1] if lines else None


def grounding_sample(episode: Episode, step: Step, builder: PromptBuilder, frame: FrameOf) -> Sample:
    """Raises ConfigError for a step that the builder cannot write."""
    said = named_element(step)
    assert said is not None
    alone = msgspec.structs.replace(step, index=0, thought=None, response=None)
    asked = msgspec.structs.replace(episode, goal=said, instruction=said, steps=(alone,))
    try:
        return step_sample(asked, 0, builder, frame)
    except BadSample as fault:
        raise ConfigError(f"data: episode {episode.episode_id}: step {step.index}: {fault}") from None
