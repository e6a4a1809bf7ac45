"""A trainer's data: `open_source(config.data, builder, faults)` gives a lazy sequence of samples.

`data` is a folder of episode folders, a packed dataset, chats (a folder of `*.jsonl`, one `*.jsonl` or `*.json` file, a
folder of parquet files, `hf://datasets/OWNER/NAME[@REVISION]`), or a list of those with weights:

    data: runs/dataset
    data: {path: runs/dataset, split: validation}
    data: [{path: runs/dataset, weight: 3}, {path: general, weight: 1, kind: chat}]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from eval.config import Config, ConfigError
from eval.prompts import PromptBuilder
from training.data import samples
from training.data.faults import Faults
from training.data.packed.store import is_dataset
from training.data.samples import Sample


class SourceConfig(Config, frozen=True):
    """
    path    a packed dataset, a folder of episode folders, or chats: a folder or file, or hf://datasets/OWNER/NAME
    split   of a packed dataset, of parquet files or of a data set of the hub
    weight  its share of a mixture, relative to the others'
    kind    auto: chat for a folder with *.jsonl files and no dataset.json, else episodes. grounding: of episodes, each
            step that says what it points at, asked alone (training.data.grounding)
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
        from training.data.grounding import GroundingSamples

        episodes = _open(msgspec.structs.replace(source, kind="episodes"), builder, faults)
        return GroundingSamples(episodes, builder, source.path)
    folder = Path(source.path)
    if source.path.startswith("hf://") or (source.kind != "episodes" and folder.is_dir() and not is_dataset(folder)):
        from training.data.chat_tables import chat_folder, is_table

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
        from training.data.packed.stream import PackedEpisodes, PackedSamples

        return PackedSamples(PackedEpisodes(folder, source.split), builder, faults)
    if source.kind == "chat" or (source.kind == "auto" and any(folder.glob("*.jsonl"))):
        from training.data.chat import ChatSamples

        return ChatSamples(folder, faults)
    if source.split != "train":
        raise ConfigError(f"data: {folder} is not packed and so has no split {source.split!r}")
    return samples.load(folder, builder, faults)
