"""What `python -m tests.bench data_libraries` compares: a module per library, all with the functions of `Library`.

All write the same steps and give back the same: the step's fields, decoded from their text, and its picture's bytes.
A row of a library is a step with the texts of the three steps before it, because the prompt shows them; a row of ours
is an episode.
"""

from __future__ import annotations

import io
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

EPISODE: Final = 10  # steps
PICTURES: Final = 500  # different pictures; each step's file is made unique by a text chunk
SIZE: Final = 64  # pixels each way
HISTORY: Final = 3  # earlier steps whose texts a prompt shows
BATCH: Final = 16
SEED: Final = 7
LIBRARIES: Final = ("ours", "datasets_mapped", "datasets_streamed", "webdataset", "lance", "mosaic")


class Row(NamedTuple):
    """A step: its number in the whole, its fields as JSON, and its picture as a PNG file."""

    number: int
    text: str
    picture: bytes


Item = tuple[int, dict[str, Any], bytes]  # a step as a loader gives it: number, fields, the picture's file


@dataclass(frozen=True)
class Place:
    """Where a dataset lies: a folder, or with `options` a prefix of an S3 store, read through the folder `local`.

    options  key, secret, region, endpoint, bucket, prefix, and `signed`: a signed address for each file
    """

    folder: Path
    options: dict[str, Any] | None = None
    local: Path = Path()


class Loader(Protocol):
    """Batches of steps. `state` is that after the last batch given, to be handed to `open_loader` in a new process."""

    def __iter__(self) -> Iterator[list[Item]]: ...
    def state(self) -> Any: ...


class Library(Protocol):
    """
    write    makes a dataset in a new folder
    open_loader  batches of BATCH steps, in order or shuffled, prepared by `workers` processes; `state` resumes
    mix      numbers of the steps that two datasets give, mixed by weight; None where a library cannot
    """

    def write(self, folder: Path, steps: int, start: int = 0) -> None: ...
    def open_loader(self, place: Place, *, shuffled: bool, workers: int, state: Any = None) -> Loader: ...
    def mix(self, folders: list[Path], weights: list[float]) -> Iterator[int] | None: ...


def library(name: str) -> Library:
    """Raises ModuleNotFoundError where the library is not installed."""
    return cast("Library", import_module(f"tests.bench.libraries.{name}"))


@cache
def pictures() -> list[bytes]:
    """PNG files of SIZE x SIZE pixels with some coloured boxes."""
    from PIL import Image, ImageDraw

    rng, made = random.Random(0), []
    for _ in range(PICTURES):
        image = Image.new("RGB", (SIZE, SIZE), (rng.randint(200, 255),) * 3)
        canvas = ImageDraw.Draw(image)
        for _ in range(4):
            x, y = rng.randrange(SIZE - 16), rng.randrange(SIZE - 16)
            canvas.rectangle((x, y, x + 20, y + 10), fill=tuple(rng.randrange(256) for _ in range(3)))
        buffer = io.BytesIO()
        image.save(buffer, "PNG", optimize=True)
        made.append(buffer.getvalue())
    return made


def picture(number: int) -> bytes:
    """A picture whose file no other step has: a tEXt chunk with the number before IEND, which is 12 bytes long."""
    files = pictures()
    data = files[number * 7919 % len(files)]
    body = b"tEXtstep\0%d" % number
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return data[:-12] + chunk + data[-12:]


def fields(number: int) -> dict[str, Any]:
    """The step's fields; the action as the packed dataset writes it."""
    episode, index = divmod(number, EPISODE)
    spread = number * 2654435761 % 2**32 / 2**32
    action: dict[str, Any] = {"type": "click", "x": round(spread, 4), "y": round(1 - spread, 4)}
    if index == EPISODE - 1:
        action = {"type": "done"}
    elif index % 3 == 2:
        action = {"type": "type", "text": f"word {number % 1000}"}
    return {
        "number": number,
        "episode": f"episode-{episode}",
        "instruction": f"Do the things of task {episode % 5000}",
        "index": index,
        "action": action,
        "thought": f"Now part {index} of it",
    }


def rows(steps: int, start: int = 0) -> Iterator[Row]:
    """Steps `start` to `start + steps` as a library that stores rows of steps gets them."""
    for number in range(start, start + steps):
        step = fields(number)
        before = range(max(number - HISTORY, number - number % EPISODE), number)
        step["history"] = [{name: fields(at)[name] for name in ("action", "thought")} for at in before]
        yield Row(number, json.dumps(step), picture(number))


class IndexedLoader:
    """torch's loader over a dataset with random access; the order is a permutation made from SEED.

    Its state is the number of steps given: the sampler begins there, and reads nothing of what came before.
    """

    def __init__(self, items: Any, *, shuffled: bool, workers: int, state: Any, spawn: bool = False) -> None:
        import torch
        from torch.utils.data import DataLoader

        order = torch.randperm(len(items), generator=torch.Generator().manual_seed(SEED)) if shuffled else None
        self.given = int(state or 0)
        rest: Iterable[int] = range(self.given, len(items)) if order is None else _Numbers(order[self.given :])
        more: dict[str, Any] = {"multiprocessing_context": "spawn"} if spawn and workers else {}
        self.loader: Any = DataLoader(
            items,
            batch_size=BATCH,
            sampler=rest,
            collate_fn=list,
            num_workers=workers,
            **more,
        )

    def __iter__(self) -> Iterator[list[Item]]:
        for batch in self.loader:
            self.given += len(batch)
            yield batch

    def state(self) -> int:
        return self.given


class _Numbers:
    """A tensor of numbers as a sampler, without a list of Python's integers."""

    def __init__(self, order: Any) -> None:
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        for first in range(0, len(self.order), 1024):
            yield from self.order[first : first + 1024].tolist()


class SkippingLoader:
    """Batches of a stream that cannot begin in its middle: the same stream again, without what was given before."""

    def __init__(self, stream: Callable[[], Iterable[list[Item]]], state: Any) -> None:
        self.stream, self.given = stream, int(state or 0)

    def __iter__(self) -> Iterator[list[Item]]:
        for number, batch in enumerate(self.stream()):
            if number >= self.given:
                self.given = number + 1
                yield batch

    def state(self) -> int:
        return self.given
