"""webdataset: tar files with a JSON file and a picture per step; shards and a buffer are shuffled.

It has no states: a resume reads again what was given before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.libraries import BATCH, SEED, Item, Loader, Place, SkippingLoader, rows

SHARD, BUFFER = 50_000, 1_000  # steps of a file, and of the buffer that is shuffled


def write(folder: Path, steps: int, start: int = 0) -> None:
    wds: Any = import_module("webdataset")
    folder.mkdir(parents=True)
    shard = max(1_000, min(SHARD, steps // 8))
    with wds.ShardWriter(str(folder / "train-%05d.tar"), maxcount=shard, verbose=0) as sink:
        for row in rows(steps, start):
            sink.write({"__key__": f"{row.number:09d}", "json": row.text.encode(), "png": row.picture})


def stream(addresses: list[str], shuffled: bool) -> Any:
    wds: Any = import_module("webdataset")
    data = wds.WebDataset(addresses, shardshuffle=False, empty_check=False, seed=SEED)
    if shuffled:
        data = wds.WebDataset(addresses, shardshuffle=len(addresses), detshuffle=True, empty_check=False, seed=SEED)
        data = data.compose(wds.detshuffle(BUFFER, seed=SEED))
    return data


def item(sample: dict[str, Any]) -> Item:
    return int(sample["__key__"]), json.loads(sample["json"]), sample["png"]


def collate(batch: list[dict[str, Any]]) -> list[Item]:
    return [item(sample) for sample in batch]


def open_loader(place: Place, *, shuffled: bool, workers: int, state: Any = None) -> Loader:
    from torch.utils.data import DataLoader

    names = sorted(path.name for path in place.folder.glob("*.tar"))
    addresses = [place.options["signed"][name] if place.options else str(place.folder / name) for name in names]

    def batches() -> Iterable[list[Item]]:
        loader: Iterable[list[Item]] = DataLoader(
            stream(addresses, shuffled), batch_size=BATCH, collate_fn=collate, num_workers=workers
        )
        return loader

    return SkippingLoader(batches, state)


def mix(folders: list[Path], weights: list[float]) -> Iterator[int]:
    wds: Any = import_module("webdataset")
    sources = [stream(sorted(map(str, folder.glob("*.tar"))), shuffled=False).repeat() for folder in folders]
    for sample in wds.RandomMix(sources, [weight / sum(weights) for weight in weights]):
        yield int(sample["__key__"])
