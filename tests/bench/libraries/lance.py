"""Lance: a table with a row per step, read at random by its own `take`.

Workers are spawned, because its threads forbid a fork.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.libraries import IndexedLoader, Item, Loader, Place, rows

GROUP = 1_000


def write(folder: Path, steps: int, start: int = 0) -> None:
    import pyarrow as pa

    lance: Any = import_module("lance")
    schema = pa.schema([("number", pa.int64()), ("text", pa.string()), ("picture", pa.binary())])

    def batches() -> Iterator[Any]:
        for first in range(start, start + steps, GROUP):
            columns = zip(*rows(min(GROUP, start + steps - first), first), strict=True)
            yield pa.record_batch([pa.array(column) for column in columns], schema=schema)

    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), str(folder), schema)


class Steps:
    """Each process opens the table itself; torch asks for whole batches by `__getitems__`."""

    def __init__(self, place: Place) -> None:
        self.address, self.options = str(place.folder), {}
        if place.options:
            given = place.options
            self.address = f"s3://{given['bucket']}/{given['prefix']}"
            self.options = {
                "aws_access_key_id": given["key"],
                "aws_secret_access_key": given["secret"],
                "aws_endpoint": given["endpoint"],
                "aws_region": given["region"],
                "allow_http": "true",
            }
        self.table: Any = None
        self.length = self.opened().count_rows()
        self.table = None

    def opened(self) -> Any:
        if self.table is None:
            lance: Any = import_module("lance")
            self.table = lance.dataset(self.address, storage_options=self.options or None)
        return self.table

    def __len__(self) -> int:
        return int(self.length)

    def __getitem__(self, at: int) -> Item:
        return self.__getitems__([at])[0]

    def __getitems__(self, numbers: list[int]) -> list[Item]:
        found = self.opened().take(numbers).to_pydict()
        texts = map(json.loads, found["text"])
        return list(zip(found["number"], texts, found["picture"], strict=True))


def open_loader(place: Place, *, shuffled: bool, workers: int, state: Any = None) -> Loader:
    return IndexedLoader(Steps(place), shuffled=shuffled, workers=workers, state=state, spawn=True)


def mix(folders: list[Path], weights: list[float]) -> Iterator[int] | None:
    """Lance mixes nothing."""
    return None
