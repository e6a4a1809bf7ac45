"""The lines of a training's records, a type for each kind, and their writer: JSON lines in numbered pieces.

A folder `records/` holds 000001.jsonl, 000002.jsonl and so on. A piece grows, and its lines are never changed. Its
first line has the version of the schema. A piece that is full is closed and never written again, so that what follows a
training reads each piece once, and a store keeps one body per key for all but the last. Whoever goes on after a crash
begins another piece: a line that a crash cut off stays the last one of its piece, and readers pass over it. Pictures
and trees are named, not held. `launcher.results.training_records` reads them, without this package.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, ClassVar, Final, Literal, Self

import msgspec

from eval.config import ConfigError

Phase = Literal["train", "eval", "baseline"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="record"):
    """One line. Numbers that are none (NaN, infinite) are written as null."""


class PieceEntry(Entry, frozen=True, kw_only=True, tag="piece"):
    """The first line of a piece."""

    schema_version: str
    piece: int


class TrainingEntry(Entry, frozen=True, kw_only=True, tag="training"):
    """The training itself, once at its start. `config`: as it was given, without secrets."""

    name: str
    method: str
    model: str
    config: dict[str, Any]
    time: float


class StepEntry(Entry, frozen=True, kw_only=True, tag="step"):
    """One optimiser step, evaluation or baseline, at its end."""

    phase: Phase
    step: int
    metrics: dict[str, float | None]
    time: float


class GroupEntry(Entry, frozen=True, kw_only=True, tag="group"):
    """One task that was tried. `dropped`: why nothing was learnt from it; None: it was."""

    phase: Phase
    step: int
    group: int
    task_id: str
    seed: int
    instruction: str
    environment: str = ""
    dropped: str | None = None


class RolloutEntry(Entry, frozen=True, kw_only=True, tag="rollout"):
    """One try at a task, at its end.

    total    the return; None for a void one, of which `error` says what broke
    parts    what `total` is the sum of, by name
    errors   how many answers had which fault: parse, tool_name, tool_arguments, runtime
    episode  the folder with its pictures, from the folder above `records`
    version  of the weights that sampled it: optimiser steps, or updates where rollouts run beside the training
    """

    phase: Phase
    step: int
    group: int
    rollout: int
    outcome: Literal["scored", "void"]
    total: float | None
    success: bool | None
    turns: int
    tokens: int
    parts: dict[str, float] = {}
    errors: dict[str, int] = {}
    error: str | None = None
    episode: str | None = None
    version: int | None = None
    seconds: float | None = None
    time: float


class TurnEntry(Entry, frozen=True, kw_only=True, tag="turn"):
    """One answer of the model. `logprobs`: of `token_ids`, when they were sampled; `texts`: of each of them alone.

    entropies  of the policy at each of them, nats; `entropy` is their mean
    masked    why the turn is not in the loss, where that is not its group's `dropped`
    """

    phase: Phase
    step: int
    group: int
    rollout: int
    turn: int
    response: str
    thought: str | None = None
    parse_error: str | None = None
    tokens: int = 0
    advantage: float | None = None
    entropy: float | None = None
    anchor: str | None = None
    token_ids: list[int] | None = None
    logprobs: list[float | None] | None = None
    texts: list[str] | None = None
    entropies: list[float | None] | None = None
    masked: str | None = None


class ActionEntry(Entry, frozen=True, kw_only=True, tag="action"):
    """One action of a turn. `refused`: why the desktop did not do it."""

    phase: Phase
    step: int
    group: int
    rollout: int
    turn: int
    number: int
    action: dict[str, Any]
    refused: str | None = None


class ObservationEntry(Entry, frozen=True, kw_only=True, tag="observation"):
    """What the model saw before a turn, and at the end of the rollout. The files lie in the rollout's `episode`."""

    phase: Phase
    step: int
    group: int
    rollout: int
    turn: int
    screenshot: str
    tree: str | None = None
    size: tuple[int, int] | None = None


class ValidationEntry(Entry, frozen=True, kw_only=True, tag="validation"):
    """Who judged a rollout, and what he said; `error` where he failed, which voids the rollout."""

    phase: Phase
    step: int
    group: int
    rollout: int
    by: str
    score: float | None
    success: bool | None
    detail: dict[str, Any] = {}
    error: str | None = None


class StatusEntry(Entry, frozen=True, kw_only=True, tag="status"):
    """What the training does now. `resumed`: it goes on after `step`; what earlier lines say of later steps was thrown
    away. -1: it began anew, with its baseline."""

    status: Literal["started", "resumed", "running", "stopped", "failed", "done"]
    step: int
    progress: float | None = None
    reason: str | None = None
    time: float


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
