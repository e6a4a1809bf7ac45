"""Reads the records of a reinforcement learning run (`records/` of its results) into rows of the database.

The pieces are read in order, each once: a closed piece never changes, so the next reading begins after the last closed
one. A training that resumed from a checkpoint has discarded its records of later steps; their rows are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from launcher.monitor.tables import identify
from launcher.results.read import StoredOutput
from launcher.results.training_records import (
    PIECES,
    RlAction,
    RlAtStep,
    RlGroup,
    RlObservation,
    RlRecord,
    RlRollout,
    RlStatus,
    RlStep,
    RlTraining,
    RlTurn,
    RlValidation,
    read_piece,
)

FOLDER: Final = "records/"
RESUMED: Final = b'"resumed"'  # in a piece that may hold such a line
OWNERS: Final = {"train": "steps", "eval": "evals", "baseline": "baselines"}


class StepKey(NamedTuple):
    phase: str
    step: int


class GroupKey(NamedTuple):
    phase: str
    step: int
    group: int


class RolloutKey(NamedTuple):
    phase: str
    step: int
    group: int
    rollout: int

    @property
    def name(self) -> str:
        return f"{self.phase}/{self.step}/{self.group}/{self.rollout}"


Part = RlTurn | RlAction | RlObservation | RlValidation | RlRollout


@dataclass
class ReportedTraining:
    """What the pieces up to one of them say, without the rollouts themselves.

    pieces    their sha256, in their order
    rollouts  place -> the id of its row
    waiting   lines of rollouts whose own line, their last, has not come
    pictures  path -> where it lay when it was read
    """

    pieces: list[str] = field(default_factory=list)
    training: RlTraining = field(default_factory=RlTraining)
    statuses: list[RlStatus] = field(default_factory=list)
    steps: dict[StepKey, RlStep] = field(default_factory=dict)
    groups: dict[GroupKey, RlGroup] = field(default_factory=dict)
    rollouts: dict[RolloutKey, int] = field(default_factory=dict)
    waiting: dict[RolloutKey, list[Part]] = field(default_factory=dict)
    pictures: dict[str, str] = field(default_factory=dict)

    def copy(self) -> ReportedTraining:
        return ReportedTraining(
            list(self.pieces),
            self.training,
            list(self.statuses),
            dict(self.steps),
            dict(self.groups),
            dict(self.rollouts),
            {place: list(lines) for place, lines in self.waiting.items()},
            dict(self.pictures),
        )

    def forget(self, step: int) -> None:
        """A training went on after `step`."""
        self.steps = {place: line for place, line in self.steps.items() if place.step <= step}
        self.groups = {place: line for place, line in self.groups.items() if place.step <= step}
        self.rollouts = {place: key for place, key in self.rollouts.items() if place.step <= step}
        self.waiting = {place: lines for place, lines in self.waiting.items() if place.step <= step}


@dataclass(frozen=True)
class ReportedRollout:
    """A rollout with all its lines."""

    place: RolloutKey
    id: int
    line: RlRollout
    parts: Sequence[Part]

    @property
    def group(self) -> GroupKey:
        return GroupKey(*self.place[:3])

    @property
    def pictures(self) -> dict[int, str]:
        """Turn -> the path of its picture."""
        seen = (part for part in self.parts if isinstance(part, RlObservation))
        return {part.turn: f"{self.line.episode}/{part.screenshot}" for part in seen}


def file_identity(output: StoredOutput, path: str) -> str:
    """Where a file lies, and which it is; "" if the output does not have it."""
    entry = output.manifest.files.get(path)
    return f"{entry.at} {entry.sha256}" if entry is not None else ""


def piece_names(output: StoredOutput) -> list[tuple[int, str]]:
    """(number, path) of the pieces, in their order; up to the first that is missing, since the order tells."""
    found = {
        int(match[1]): path for path in output.files if (match := PIECES.fullmatch(path)) and path.startswith(FOLDER)
    }
    names = []
    for expected in range(1, len(found) + 1):
        if expected not in found:
            break
        names.append((expected, found[expected]))
    return names


class TrainingReader:
    """Reads the records of one run, again and again as they grow. What it keeps is only to save work: another reader,
    or this one after another output, finds the same."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        self.closed = ReportedTraining()  # up to the last piece but one
        self.told = ReportedTraining()
        self.present = self.told  # while it reads: of the pieces so far

    def read(self, output: StoredOutput) -> Iterator[ReportedRollout]:
        """The rollouts of pieces that are new or have grown; `told` is whole when it ends. Raises DamagedResults,
        NotFound."""
        names = piece_names(output)
        digests = [output.manifest.files[path].sha256 for _, path in names]
        moved = any(file_identity(output, path) != at for path, at in self.closed.pictures.items())
        if moved or self.closed.pieces != digests[: len(self.closed.pieces)]:
            self.closed = ReportedTraining()
        done = len(self.closed.pieces)
        self.present = told = self.closed.copy()
        limits = self._limits(output, names[done:])
        for index, (at, path) in enumerate(names[done:]):
            if done + index == len(names) - 1:
                self.closed = told.copy()
            limit = min(limits[index + 1 :], default=None)
            for rollout in self._piece(output, at, path, told):
                if limit is None or rollout.place.step <= limit:
                    yield rollout
            told.pieces.append(digests[done + index])
        self.told = told

    def _limits(self, output: StoredOutput, names: Sequence[tuple[int, str]]) -> list[float]:
        """For each piece the last step that it does not throw away; none is looked for in the first."""
        found = [float("inf")] * len(names)
        for index, (at, path) in enumerate(names[1:], 1):
            body = output.read(path)
            if RESUMED in body:
                lines = read_piece(body, at, output.prefix + path)
                steps = [line.step for line in lines if isinstance(line, RlStatus) and line.status == "resumed"]
                found[index] = min(steps, default=float("inf"))
        return found

    def _piece(self, output: StoredOutput, at: int, path: str, told: ReportedTraining) -> Iterator[ReportedRollout]:
        whole_ones: dict[RolloutKey, ReportedRollout] = {}
        for line in read_piece(output.read(path), at, output.prefix + path):
            if isinstance(line, RlStatus) and line.status == "resumed":
                told.forget(line.step)
                whole_ones = {place: one for place, one in whole_ones.items() if place.step <= line.step}
            found = read_new(told, line)
            if found is not None:
                rollout = ReportedRollout(found, self._id(found), *_split(told.waiting.pop(found)))
                whole_ones[found] = rollout
                for path in rollout.pictures.values():
                    told.pictures[path] = file_identity(output, path)
                told.rollouts[found] = rollout.id
        yield from whole_ones.values()

    def _id(self, place: RolloutKey) -> int:
        return identify("rollout", self.run_id, place.name)


def read_new(told: ReportedTraining, line: RlRecord) -> RolloutKey | None:
    """Adds a line; returns the rollout that it makes whole."""
    if isinstance(line, RlTraining):
        told.training = line
    elif isinstance(line, RlStatus):
        told.statuses.append(line)
    elif isinstance(line, RlAtStep) and line.phase in OWNERS:
        return _placed(told, line)
    return None


def _placed(told: ReportedTraining, line: RlAtStep) -> RolloutKey | None:
    if isinstance(line, RlStep):
        place = StepKey(line.phase, line.step)
        before = told.steps.get(place)
        if before is not None:  # figures of the same step, told later
            line = msgspec.structs.replace(line, metrics={**before.metrics, **line.metrics})
        told.steps[place] = line
    elif isinstance(line, RlGroup):
        told.groups[GroupKey(line.phase, line.step, line.group)] = line
    elif isinstance(line, RlRollout | RlTurn | RlAction | RlObservation | RlValidation):
        rollout = RolloutKey(line.phase, line.step, line.group, line.rollout)
        told.waiting.setdefault(rollout, []).append(line)
        return rollout if isinstance(line, RlRollout) else None
    return None


def _split(lines: Sequence[Part]) -> tuple[RlRollout, Sequence[Part]]:
    (own,) = [line for line in lines if isinstance(line, RlRollout)]
    return own, [line for line in lines if line is not own]
