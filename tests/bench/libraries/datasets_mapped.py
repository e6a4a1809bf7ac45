"""Hugging Face's `datasets`, Parquet with a row per step, unpacked into its cache and mapped: access at random."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.libraries import IndexedLoader, Item, Loader, Place
from tests.bench.libraries.datasets_streamed import item, read, write

__all__ = ["mix", "open_loader", "write"]


class Steps:
    def __init__(self, place: Place) -> None:
        self.rows = read(place, streaming=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> Item:
        return item(self.rows[at])


def open_loader(place: Place, *, shuffled: bool, workers: int, state: Any = None) -> Loader:
    return IndexedLoader(Steps(place), shuffled=shuffled, workers=workers, state=state)


def mix(folders: list[Path], weights: list[float]) -> Iterator[int]:
    import datasets

    sources = [read(Place(folder), streaming=False).select_columns(["number"]) for folder in folders]
    shares = [weight / sum(weights) for weight in weights]
    for row in datasets.interleave_datasets(sources, shares, seed=1, stopping_strategy="all_exhausted"):
        yield row["number"]
