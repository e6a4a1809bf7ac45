"""Reads what a training by reinforcement tells of itself: `records/NNNNNN.jsonl` of an output.

docs/reference/formats.md has the fields. Lines of a kind that is not known here, and fields that are not, come from a
newer writer and are passed over; a schema with a newer first number is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from launcher.decoding import decode
from launcher.results.read import DamagedResults, StoredOutput

SCHEMA: Final = 1  # the first number of the schema's version
PIECES: Final = re.compile(r"(?:.*/)?records/(\d{6,})\.jsonl")


class RlRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line; `KIND` is its field `record`."""

    KIND: ClassVar = ""


class RlTraining(RlRecord, frozen=True):
    """The training itself."""

    KIND: ClassVar = "training"
    name: str = ""
    method: str = ""
    model: str = ""
    config: dict[str, Any] = {}
    time: float = 0.0


class RlStatus(RlRecord, frozen=True):
    """What the training did from then on: started, resumed, running, stopped, failed, done."""

    KIND: ClassVar = "status"
    status: str = ""
    step: int = 0
    progress: float | None = None
    reason: str | None = None
    time: float = 0.0


class RlAtStep(RlRecord, frozen=True):
    """A line that belongs to a step of a phase: train, eval or baseline."""

    phase: str = "train"
    step: int = 0


class RlStep(RlAtStep, frozen=True):
    """One optimiser step, evaluation or baseline."""

    KIND: ClassVar = "step"
    metrics: dict[str, float | None] = {}
    time: float = 0.0


class RlGroup(RlAtStep, frozen=True):
    """One task that was tried. `dropped`: why nothing was learnt from it."""

    KIND: ClassVar = "group"
    group: int = 0
    task_id: str = ""
    seed: int = 0
    instruction: str = ""
    environment: str = ""
    dropped: str | None = None


class RlRollout(RlAtStep, frozen=True):
    """One try at a task. `total`: its return, None for the outcome void."""

    KIND: ClassVar = "rollout"
    group: int = 0
    rollout: int = 0
    outcome: str = "scored"
    total: float | None = None
    success: bool | None = None
    turns: int = 0
    tokens: int = 0
    parts: dict[str, float] = {}
    errors: dict[str, int] = {}
    error: str | None = None
    episode: str | None = None
    version: int | None = None
    seconds: float | None = None
    time: float = 0.0


class RlTurn(RlAtStep, frozen=True):
    """One answer of the model."""

    KIND: ClassVar = "turn"
    group: int = 0
    rollout: int = 0
    turn: int = 0
    response: str = ""
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


class RlAction(RlAtStep, frozen=True):
    """One action of a turn."""

    KIND: ClassVar = "action"
    group: int = 0
    rollout: int = 0
    turn: int = 0
    number: int = 0
    action: dict[str, Any] = {}
    refused: str | None = None


class RlObservation(RlAtStep, frozen=True):
    """What the model saw before a turn."""

    KIND: ClassVar = "observation"
    group: int = 0
    rollout: int = 0
    turn: int = 0
    screenshot: str = ""
    tree: str | None = None
    size: tuple[int, int] | None = None


class RlValidation(RlAtStep, frozen=True):
    """Who judged a rollout, and what he said."""

    KIND: ClassVar = "validation"
    group: int = 0
    rollout: int = 0
    by: str = ""
    score: float | None = None
    success: bool | None = None
    detail: dict[str, Any] = {}
    error: str | None = None


LINES: Final[dict[str, type[RlRecord]]] = {
    kind.KIND: kind
    for kind in (
        RlTraining,
        RlStatus,
        RlStep,
        RlGroup,
        RlRollout,
        RlTurn,
        RlAction,
        RlObservation,
        RlValidation,
    )
}


class _Head(msgspec.Struct):
    record: str
    schema_version: str = "1"
    piece: int = 0


def read_output(output: StoredOutput) -> list[RlRecord]:
    """The lines of an output, without those that a resume threw away; [] where it has no records.

    Raises DamagedResults.
    """
    pieces = sorted((int(found[1]), path) for path in output.files if (found := PIECES.fullmatch(path)))
    return _current(_read((number, output.prefix + path, output.read(path)) for number, path in pieces))


def read_folder(folder: Path) -> list[RlRecord]:
    """The same of a folder that holds `records/`. Raises DamagedResults."""
    paths = sorted(folder.glob("records/*.jsonl"))
    pieces = ((int(found[1]), path) for path in paths if (found := PIECES.fullmatch(path.as_posix())))
    return _current(_read((number, str(path), path.read_bytes()) for number, path in pieces))


def _read(pieces: Iterable[tuple[int, str, bytes]]) -> Iterator[RlRecord]:
    for expected, (number, where, body) in enumerate(pieces, 1):
        if number != expected:
            raise DamagedResults(f"{where}: piece {expected} is missing")
        yield from read_piece(body, number, where)


def read_piece(body: bytes, number: int, where: str) -> Iterator[RlRecord]:
    """The lines of one piece. A last line without a line break was cut off by a crash, and is passed over.

    Raises DamagedResults for any other malformed line, a piece with another number, and a schema that is too new.
    """
    *lines, _ = body.split(b"\n")
    for place, line in enumerate(lines, 1):
        try:
            head = decode(line, _Head)
            if place == 1:
                _check(head, number)
            kind = LINES.get(head.record)
            if kind is not None:
                yield decode(line, kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            raise DamagedResults(f"{where}:{place}: {error}") from None


def _check(head: _Head, number: int) -> None:
    if head.record != "piece" or head.piece != number:
        raise ValueError(f"the first line is not that of piece {number}")
    if int(head.schema_version.partition(".")[0]) > SCHEMA:
        raise ValueError(f"schema {head.schema_version} is newer than this program, which reads {SCHEMA}")


def _current(lines: Iterable[RlRecord]) -> list[RlRecord]:
    """Without the lines of steps that a later resume threw away."""
    kept: list[RlRecord] = []
    for line in lines:
        if isinstance(line, RlStatus) and line.status == "resumed":
            kept = [one for one in kept if not isinstance(one, RlAtStep) or one.step <= line.step]
        kept.append(line)
    return kept
