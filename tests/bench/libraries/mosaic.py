"""mosaicml-streaming: MDS shards with a row per step, shuffled by shards and blocks, states by its own loader."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.libraries import BATCH, SEED, Item, Loader, Place, rows

COLUMNS = {"number": "int", "text": "str", "picture": "bytes"}


def write(folder: Path, steps: int, start: int = 0) -> None:
    streaming: Any = import_module("streaming")
    with streaming.MDSWriter(out=str(folder), columns=COLUMNS, compression=None, size_limit=2**25) as writer:
        for row in rows(steps, start):
            writer.write({"number": row.number, "text": row.text, "picture": row.picture})


def collate(batch: list[dict[str, Any]]) -> dict[str, list[Item]]:
    """In a dict, by whose first value the library counts the steps that were given."""
    return {"items": [(int(row["number"]), json.loads(row["text"]), row["picture"]) for row in batch]}


class MosaicLoader:
    def __init__(self, place: Place, shuffled: bool, workers: int, state: Any) -> None:
        streaming: Any = import_module("streaming")
        where: dict[str, Any] = {"local": str(place.folder)}
        if place.options:
            given = place.options
            os.environ["S3_ENDPOINT_URL"] = given["endpoint"]
            where = {"remote": f"s3://{given['bucket']}/{given['prefix']}", "local": str(place.local)}
        streaming.base.util.clean_stale_shared_memory()  # a killed process leaves its own behind
        self.data = streaming.StreamingDataset(**where, shuffle=shuffled, shuffle_seed=SEED, batch_size=BATCH)
        self.loader: Any = streaming.StreamingDataLoader(
            self.data, batch_size=BATCH, collate_fn=collate, num_workers=workers
        )
        if state is not None:
            self.loader.load_state_dict(state)

    def __iter__(self) -> Iterator[list[Item]]:
        for batch in self.loader:
            yield batch["items"]

    def state(self) -> Any:
        return self.loader.state_dict()


def open_loader(place: Place, *, shuffled: bool, workers: int, state: Any = None) -> Loader:
    return MosaicLoader(place, shuffled, workers, state)


def mix(folders: list[Path], weights: list[float]) -> Iterator[int]:
    streaming: Any = import_module("streaming")
    streaming.base.util.clean_stale_shared_memory()
    sources = [
        streaming.Stream(local=str(folder), proportion=weight / sum(weights))
        for folder, weight in zip(folders, weights, strict=True)
    ]
    data = streaming.StreamingDataset(streams=sources, shuffle=True, shuffle_seed=SEED, batch_size=BATCH)
    for row in data:
        yield int(row["number"])
