"""What an evaluation during the training, or the baseline before it, becomes in the records: groups of one rollout."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from eval.desktop import Task
from eval.rollout.task_run import Rollout
from eval.scores.stats import Estimate
from training.rl.records.entries import (
    ActionEntry,
    Entry,
    GroupEntry,
    RolloutEntry,
    StepEntry,
    TurnEntry,
    ValidationEntry,
)


def evaluation_entries(
    phase: Literal["eval", "baseline"],
    step: int,
    environment: str,
    scores: Mapping[str, Estimate],
    tried: Sequence[tuple[Task, Rollout]],
) -> Iterator[Entry]:
    """`environment`: of the evaluation's tasks. Nothing is learnt from them, so there are no advantages; pictures are
    not kept. The step comes last: who finds it has all of the evaluation."""
    for number, (task, result) in enumerate(tried):
        yield GroupEntry(
            phase=phase,
            step=step,
            group=number,
            task_id=task.task_id,
            seed=task.seed,
            instruction=task.instruction,
            environment=environment,
        )
        yield from _rollout(phase, step, number, environment, result)
    yield StepEntry(
        phase=phase, step=step, metrics={name: score.value for name, score in scores.items()}, time=time.time()
    )


def _rollout(
    phase: Literal["eval", "baseline"], step: int, group: int, environment: str, result: Rollout
) -> Iterator[Entry]:
    record = result.record
    steps = () if result.episode is None else result.episode.steps
    for turn, each in enumerate(steps):
        yield TurnEntry(
            phase=phase,
            step=step,
            group=group,
            rollout=0,
            turn=turn,
            response=each.response or "",
            thought=each.thought,
            parse_error=each.parse_error,
            tokens=len(each.token_ids or ()),
        )
        for count, action in enumerate(each.actions):
            refused = each.refused if count == len(each.actions) - 1 else None
            yield ActionEntry(
                phase=phase,
                step=step,
                group=group,
                rollout=0,
                turn=turn,
                number=count,
                action=action.to_json(),
                refused=refused,
            )
    scored = record.outcome == "scored"
    if scored:
        detail = {} if result.episode is None else dict(result.episode.metadata.get("score", {}))
        yield ValidationEntry(
            phase=phase,
            step=step,
            group=group,
            rollout=0,
            by=environment,
            score=record.score,
            success=record.success,
            detail=detail,
        )
    parse = sum(each.parse_error is not None for each in steps)
    runtime = sum(each.refused is not None for each in steps)
    yield RolloutEntry(
        phase=phase,
        step=step,
        group=group,
        rollout=0,
        outcome="scored" if scored else "void",
        total=record.score if scored else None,
        success=record.success if scored else None,
        turns=len(steps),
        tokens=sum(len(each.token_ids or ()) for each in steps),
        errors={name: count for name, count in (("parse", parse), ("runtime", runtime)) if count},
        error=record.error,
        version=step,
        seconds=record.duration_ms / 1000,
        time=time.time(),
    )
