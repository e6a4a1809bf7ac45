"""Hugging Face's `datasets`, Parquet with a row per step, streamed; shards and a buffer are shuffled.

The states are torchdata's, as the library's own pages advise for several workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.libraries import BATCH, SEED, Item, Loader, Place, rows

GROUP, SHARD, BUFFER = 1_000, 50_000, 1_000  # steps of a row group, of a file, and of the buffer that is shuffled


def write(folder: Path, steps: int, start: int = 0) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("number", pa.int64()), ("text", pa.string()), ("picture", pa.binary())])
    folder.mkdir(parents=True)
    shard = max(GROUP, min(SHARD, steps // 8))  # several files, so that loaders can share them
    for at, first in enumerate(range(start, start + steps, shard)):
        with pq.ParquetWriter(folder / f"train-{at:05d}.parquet", schema, compression="zstd") as writer:
            end = min(first + shard, start + steps)
            for part in range(first, end, GROUP):
                columns = zip(*rows(min(GROUP, end - part), part), strict=True)
                writer.write_table(pa.table([pa.array(column) for column in columns], schema=schema))


def read(place: Place, *, streaming: bool) -> Any:
    import datasets

    if not place.options:
        files, more = str(place.folder / "*.parquet"), {}
    else:
        given = place.options
        files = f"s3://{given['bucket']}/{given['prefix']}/*.parquet"
        address = {"endpoint_url": given["endpoint"], "region_name": given["region"]}
        more = {"storage_options": {"key": given["key"], "secret": given["secret"], "client_kwargs": address}}
    return datasets.load_dataset("parquet", data_files={"train": files}, split="train", streaming=streaming, **more)


def item(row: dict[str, Any]) -> Item:
    return row["number"], json.loads(row["text"]), row["picture"]


def collate(batch: list[dict[str, Any]]) -> list[Item]:
    return [item(row) for row in batch]


class StreamedLoader:
    def __init__(self, data: Any, workers: int, state: Any) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader

        self.loader: Any = StatefulDataLoader(data, batch_size=BATCH, collate_fn=collate, num_workers=workers)
        if state is not None:
            self.loader.load_state_dict(state)

    def __iter__(self) -> Iterator[list[Item]]:
        yield from self.loader

    def state(self) -> Any:
        return self.loader.state_dict()


def open_loader(place: Place, *, shuffled: bool, workers: int, state: Any = None) -> Loader:
    data = read(place, streaming=True)
    return StreamedLoader(data.shuffle(seed=SEED, buffer_size=BUFFER) if shuffled else data, workers, state)


def mix(folders: list[Path], weights: list[float]) -> Iterator[int]:
    import datasets

    sources = [read(Place(folder), streaming=True).select_columns(["number"]) for folder in folders]
    shares = [weight / sum(weights) for weight in weights]
    mixed = datasets.interleave_datasets(sources, shares, seed=1, stopping_strategy="all_exhausted")
    for row in mixed:
        yield row["number"]
