"""What a training by reinforcement tells of itself: JSON lines in numbered pieces, which grow and are never changed.

A folder `records/` holds 000001.jsonl, 000002.jsonl and so on. The first line of a piece says which version of the
schema it has. A piece that is full is closed and never written again, so that what follows a training reads each piece
once, and a store keeps one body per key for all but the last. Whoever goes on after a crash begins another piece: a
line that a crash cut off stays the last one of its piece, and readers pass over it. Pictures and trees are named, not
held. `launcher.results.training_records` reads them, without this package.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, ClassVar, Final, Self

import msgspec

from eval.config import ConfigError
from training.rl.records.entries import (
    ActionEntry,
    Entry,
    GroupEntry,
    ObservationEntry,
    PieceEntry,
    RolloutEntry,
    StatusEntry,
    StepEntry,
    TrainingEntry,
    TurnEntry,
    ValidationEntry,
)

SCHEMA_VERSION: Final = "1.2.0"
FOLDER: Final = "records"
PIECE: Final = 1 << 20  # bytes after which a piece is closed; a live output sends the open one anew at each round


class RecordWriter:
    """Appends to the pieces of one folder; one writer at a time. Closing it closes the last piece."""

    KINDS: ClassVar = (
        TrainingEntry,
        StepEntry,
        GroupEntry,
        RolloutEntry,
        TurnEntry,
        ActionEntry,
        ObservationEntry,
        ValidationEntry,
        StatusEntry,
    )

    def __init__(self, folder: Path, piece: int = PIECE) -> None:
        """Begins the piece after those that are there. Raises ConfigError for a folder that cannot be written."""
        self.folder = folder / FOLDER
        self.limit = piece
        self.file: BinaryIO | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            there = [int(path.stem) for path in self.folder.glob("*.jsonl") if path.stem.isdecimal()]
        except OSError as error:
            raise ConfigError(f"{self.folder}: {error.strerror}") from None
        self.number = max(there, default=0)

    def write(self, *entries: Entry) -> None:
        """Appends lines. They are in the file when it returns; a killed process loses none of them.

        Raises OSError, as for a full disk. The piece is then given up, so that no line follows half of one.
        """
        lines = b"".join(_line(entry) for entry in entries)
        if self.file is None:
            self.number += 1
            name = self.folder / f"{self.number:06d}.jsonl"
            self.file = name.open("xb", buffering=0)  # an existing piece is never written again
            lines = _line(PieceEntry(schema_version=SCHEMA_VERSION, piece=self.number)) + lines
        try:
            _whole(self.file, lines)
        except OSError:
            self.file.close()
            self.file = None
            raise
        if self.file.tell() >= self.limit:
            self.cut()

    def cut(self) -> None:
        """Closes the piece; the next line begins another. Call it with each checkpoint."""
        file, self.file = self.file, None
        if file is not None:
            os.fsync(file.fileno())
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()


def _whole(file: BinaryIO, lines: bytes) -> None:
    """Unbuffered files may take a part only."""
    left = memoryview(lines)
    while left:
        left = left[file.write(left) :]


def _line(entry: Entry) -> bytes:
    try:
        return msgspec.json.encode(entry) + b"\n"
    except (UnicodeEncodeError, TypeError):  # half of a surrogate pair in an answer; a number of torch in a detail
        return msgspec.json.encode(_plain(msgspec.to_builtins(entry, enc_hook=_number))) + b"\n"


def _number(value: Any) -> Any:
    """A number of another library as Python's."""
    return value.item() if hasattr(value, "item") else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
