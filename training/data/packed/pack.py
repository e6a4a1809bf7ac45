"""Packs episode folders into a dataset: `python -m training.data pack --config FILE [--out DIR]`.

Packs millions of small files into a few large ones (listed in `training.data.packed.store`), with each image stored
once. Writes to $SLIPWAY_OUTPUTS/dataset unless --out names another folder. An interrupted run leaves no dataset.json,
and the next run starts from the beginning. A folder that already holds this configuration's dataset is not changed.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from eval import config as configuration
from eval.config import Config, ConfigError
from eval.config import help as config_help
from eval.config.progress import progress
from eval.episodes import Episode, EpisodeError, is_complete, read_episode
from training.data.faults import BadSample, Faults, Policy
from training.data.looks import read_looks
from training.data.packed.store import Counts, DatasetManifest, is_dataset, parts, read_manifest

Part = Annotated[float, msgspec.Meta(ge=0, lt=1)]
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$"
EMPTY: Final = Counts()
EVERY: Final = 500  # episodes between two lines of progress


class SplitConfig(Config, frozen=True):
    """
    test, validation  their shares; the rest is `train`
    by                what is never torn apart: an episode (its id), all episodes of a task or of an instruction. The
                      side is decided by the text's sha256, so it never changes as data is added. `given`: the
                      episode's own metadata.split, or its tag split:NAME
    required          splits that later jobs read: `pack` refuses to end with one of them without a step to learn, so
                      that it fails here and not there
    """

    test: Part = 0.0
    validation: Part = 0.0
    by: Literal["episode", "task", "instruction", "given"] = "episode"
    required: tuple[str, ...] = ()

    def asked(self) -> tuple[str, ...]:
        """The splits that this section asks for; with `given` those that it requires."""
        if self.by == "given":
            return self.required
        return ("train", *(name for name in ("validation", "test") if getattr(self, name)))

    def check(self) -> None:
        """Raises ConfigError."""
        if self.test + self.validation >= 1:
            raise ConfigError("split: test and validation together must be below 1")
        unknown = [name for name in self.required if name not in self.asked()]
        if unknown:
            allowed = ", ".join(self.asked())
            raise ConfigError(f"split.required: no episode can fall into {unknown[0]!r}; allowed here: {allowed}")


class PackConfig(Config, frozen=True):
    """
    episodes       folders of episode folders
    split          shares of the splits, and what is kept in one split
    on_bad_sample  skip leaves out an episode that is broken, has no step, or lacks an image, and counts it
    shard_mib      size of a Parquet file, in MiB, at most about
    pack_mib       size of a tar file of images, in MiB, at most about
    """

    episodes: Annotated[list[str], msgspec.Meta(min_length=1)]
    split: SplitConfig = SplitConfig()
    on_bad_sample: Policy = "fail"
    shard_mib: Annotated[int, msgspec.Meta(ge=1)] = 256
    pack_mib: Annotated[int, msgspec.Meta(ge=1)] = 1024


def side(config: SplitConfig, episode: Episode) -> str:
    """The split of an episode. Raises BadSample when the split is `given` and the episode names none."""
    if config.by == "given":
        tags = [tag.removeprefix("split:") for tag in episode.tags if tag.startswith("split:")]
        given = episode.metadata.get("split", tags[0] if len(tags) == 1 else None)
        try:
            return str(msgspec.convert(given, Annotated[str, msgspec.Meta(pattern=NAME)]))
        except msgspec.ValidationError:
            raise BadSample("no_split", f"metadata.split or a tag split:NAME is to name it, not {given!r}") from None
    texts = {"episode": episode.episode_id, "task": episode.task_id, "instruction": episode.instruction}
    text = f"{config.by} {texts[config.by]}"
    at = int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8]) / 2**64
    return "test" if at < config.test else "validation" if at < config.test + config.validation else "train"


def find(roots: Sequence[str]) -> Iterator[Path]:
    """Every complete episode folder directly in the roots, sorted by name. Raises ConfigError."""
    for root in roots:
        if not Path(root).is_dir():
            raise ConfigError(f"episodes: there is no folder {root}")
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            if is_complete(Path(root) / name):
                yield Path(root) / name


def frames(folder: Path, episode: Episode) -> list[Path]:
    """The frame of each step, and the final frame if there is one."""
    final = folder / episode.frame(len(episode.steps))
    return [folder / step.screenshot for step in episode.steps] + ([final] if final.is_file() else [])


def pack(config: PackConfig, out: Path) -> DatasetManifest:
    """Writes the dataset. Raises ConfigError for bad input, OSError when the disk is full."""
    from training.data.packed.writer import DatasetWriter

    config.split.check()
    made_from: dict[str, Any] = msgspec.to_builtins(config)
    if is_dataset(out) and _as_now((there := read_manifest(out)).made_from) == made_from:
        return there
    faults = Faults(config.on_bad_sample)
    sizes = {"shard_bytes": config.shard_mib * 2**20, "pack_bytes": config.pack_mib * 2**20}
    with DatasetWriter(out, made_from, **sizes) as writer:
        for count, folder in enumerate(find(config.episodes), 1):
            try:
                episode = read_episode(folder)
                place, looks = side(config.split, episode), read_looks(folder)
                writer.add(episode, frames(folder, episode), split=place, folder=folder.name, looks=looks)
            except EpisodeError as error:
                faults.bad(str(folder), BadSample("broken_episode", str(error)))
            except BadSample as fault:
                faults.bad(str(folder), fault)
            if count % EVERY == 0:
                progress(count, None, "pack")
        writer.skipped = faults.report()
        for name in config.split.required if writer.counts else ():  # without any episode the writer itself refuses
            if not writer.counts.get(name, EMPTY).actions:
                raise ConfigError(f"split.required: {_why_empty(config.split, name, writer.counts)}")
    return read_manifest(out)


def _as_now(made_from: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a dataset, fields that are younger than it at their defaults; {} for an unknown one."""
    try:
        return dict(msgspec.to_builtins(msgspec.convert(made_from, PackConfig)))
    except msgspec.ValidationError:
        return {}


def _why_empty(split: SplitConfig, name: str, counts: Mapping[str, Counts]) -> str:
    """What a user reads of a split without a step to learn."""
    there = counts.get(name, EMPTY)
    if there.episodes:
        return f"split {name!r} holds {there.episodes:,} episodes and no step with an action"
    total = sum(split.episodes for split in counts.values())
    if split.by == "given":
        return f"split {name!r} is empty: none of {total:,} episodes names it"
    share = 1 - split.test - split.validation if name == "train" else getattr(split, name)
    return (
        f"split {name!r} is empty: of {total:,} episodes none fell into its share of {share:g} (by: {split.by}); "
        "more episodes or a larger share fill it"
    )


def tell(manifest: DatasetManifest, out: Path, split: SplitConfig) -> None:
    print(f"{out}")
    for name, counts in manifest.splits.items():
        print(f"  {name:<12}{counts.episodes:>10,} episodes {counts.steps:>12,} steps {counts.actions:>12,} to learn")
    for name in dict.fromkeys((*split.asked(), *manifest.splits)):
        if not manifest.splits.get(name, EMPTY).actions:
            print(f"  warning: {_why_empty(split, name, manifest.splits)}")
    size = sum(part.bytes for part in parts(manifest))
    print(f"  {manifest.index.images:,} images, {size / 1e6:,.1f} MB in {len(manifest.shards)} shards", end="")
    print(f" and {len(manifest.packs)} packs")
    for reason, count in manifest.skipped.get("by_reason", {}).items():
        print(f"  left out: {count:,} {reason}, as {manifest.skipped['examples'][reason][0]}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("training.data pack", "Pack episodes into a dataset.", PackConfig)
    parser.add_argument("--out", help="the dataset's folder; default $SLIPWAY_OUTPUTS/dataset")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), PackConfig)
        out = configuration.output_folder(arguments.out, "dataset")
        try:
            tell(pack(config, out), out, config.split)
        except OSError as error:  # most likely a full disk: a retry on another machine may succeed
            print(f"pack: {error.filename or out}: {error.strerror or error}", file=sys.stderr)
            return 1
        return 0

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
