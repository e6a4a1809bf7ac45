"""The lines of a training's records, a type for each kind. `record_writer` writes them, in numbered pieces."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

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
