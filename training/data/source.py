"""A trainer's data: `open_source(config.data, builder, faults)` gives a lazy sequence of samples.

`data` is a folder of episode folders, a packed dataset, chats (a folder of `*.jsonl`, one `*.jsonl` or `*.json` file, a
folder of parquet files, `hf://datasets/OWNER/NAME[@REVISION]`), or a list of those with weights:

    data: runs/dataset
    data: {path: runs/dataset, split: validation}
    data: [{path: runs/dataset, weight: 3}, {path: general, weight: 1, kind: chat}]

The kind `grounding` asks where on the screen a step acts. It asks each step alone that points at a place and says in
words what it does: those words are the goal, nothing came before, the answer is the step's action without a thought.
The words are the answer's section `## Action` (as in OpenCUA's data), else the last line of the step's thought.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from eval.config import Config, ConfigError
from eval.episodes import Episode, Step
from eval.prompts import PromptBuilder
from eval.prompts.demonstrations import FrameOf
from training.data import samples
from training.data.faults import BadSample, Faults
from training.data.ingest.cot import parse
from training.data.ingest.tally import Lost
from training.data.packed.store import is_dataset
from training.data.packed.stream import PackedEpisodes, PackedSamples
from training.data.samples import Sample, SampleSequence, step_sample


class GroundingSamples(SampleSequence):
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

    def _at(self, at: int) -> Sample:
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


class SourceConfig(Config, frozen=True):
    """
    path    a packed dataset, a folder of episode folders, or chats: a folder or file, or hf://datasets/OWNER/NAME
    split   of a packed dataset, of parquet files or of a data set of the hub
    weight  its share of a mixture, relative to the others'
    kind    auto: chat for a folder with *.jsonl files and no dataset.json, else episodes. grounding: of episodes, each
            step that says what it points at, asked alone (training.data.source)
    """

    path: str
    split: str = "train"
    weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    kind: Literal["auto", "episodes", "chat", "grounding"] = "auto"


Spec = str | SourceConfig | list[SourceConfig]


def open_source(
    spec: Spec | Path, builder: PromptBuilder, faults: Faults | None = None, *, seed: int = 0, length: int | None = None
) -> Sequence[Sample]:
    """The samples, not yet decoded. `faults` counts unusable samples now, not during training.

    seed    of a mixture's shuffling; the trainer's sampler shuffles again
    length  of a mixture, in samples; by default one pass over its first source

    Raises ConfigError, also for a source without samples.
    """
    faults = faults or Faults()
    if isinstance(spec, str | Path):
        return _open(SourceConfig(path=str(spec)), builder, faults)
    if isinstance(spec, SourceConfig):
        return _open(spec, builder, faults)
    from training.data.mixture import Mixture

    if not spec:
        raise ConfigError("data: a mixture needs a source")
    sources = [_open(source, builder, faults) for source in spec]
    try:
        return Mixture(sources, [source.weight for source in spec], seed=seed, length=length)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"data: {error}") from None


def _open(source: SourceConfig, builder: PromptBuilder, faults: Faults) -> Sequence[Sample]:
    if source.kind == "grounding":
        episodes = _open(msgspec.structs.replace(source, kind="episodes"), builder, faults)
        return GroundingSamples(episodes, builder, source.path)
    folder = Path(source.path)
    if source.path.startswith("hf://") or (source.kind != "episodes" and folder.is_dir() and not is_dataset(folder)):
        from training.data.chat import chat_folder, is_table

        if is_table(source.path):
            from training.data.chat import ChatSamples

            return ChatSamples(chat_folder(source.path, source.split), faults)
    if folder.is_file() and folder.suffix in (".json", ".jsonl"):
        from training.data.chat import ChatSamples

        return ChatSamples(folder, faults)
    if not folder.is_dir():
        raise ConfigError(
            f"data: there is no folder {folder}; a file of chats is *.jsonl or *.json, a data set of the hub "
            "hf://datasets/OWNER/NAME[@REVISION]"
        )
    if source.kind != "chat" and is_dataset(folder):
        return PackedSamples(PackedEpisodes(folder, source.split), builder, faults)
    if source.kind == "chat" or (source.kind == "auto" and any(folder.glob("*.jsonl"))):
        from training.data.chat import ChatSamples

        return ChatSamples(folder, faults)
    if source.split != "train":
        raise ConfigError(f"data: {folder} is not packed and so has no split {source.split!r}")
    return samples.load(folder, builder, faults)
