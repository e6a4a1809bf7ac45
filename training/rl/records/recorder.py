"""Writes what a training does into its records (`entries`), as it does it: results/records/ of its outputs.

Every evaluation's and every generation's groups, rollouts, turns, actions and judgements are there; of `kept_groups`
groups of each generation also the screens before their turns, as PNG files under results/rollouts/.
An evaluation during the training, or the baseline before it, becomes groups of one rollout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from eval.desktop import Task
from eval.episodes import frame_name
from eval.rollout.task_run import Rollout
from eval.scores.stats import Estimate
from training.common.measuring.in_training import Scores
from training.rl.config import RlConfig
from training.rl.learning.turn_records import TurnRecord, by_rollout
from training.rl.records.entries import (
    ActionEntry,
    Entry,
    GroupEntry,
    ObservationEntry,
    RolloutEntry,
    StatusEntry,
    StepEntry,
    TrainingEntry,
    TurnEntry,
    ValidationEntry,
)
from training.rl.records.record_writer import RecordWriter
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration


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


FLAT = "all rollouts have the same return"
REPLACED = "a success of before stands in the rollout's place"
BEGINNING = -1  # the step after which everything is told anew
UNUSED = -1  # in place of a group's index in the generation


class TrainingRecorder(TrainerCallback):  # type: ignore[misc]
    """The records of one training. `folder`: its results; `text_of`: the text of a token alone."""

    def __init__(self, config: RlConfig, folder: Path, text_of: Callable[[int], str] | None = None) -> None:
        self.config = config
        self.text_of = text_of and cache(text_of)
        self.folder = folder
        self.writer = RecordWriter(folder)
        self.again = self.writer.number > 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        config = self.config
        if not state.global_step:
            given = msgspec.to_builtins(config)
            name = config.run_name or config.environment
            self.writer.write(
                TrainingEntry(name=name, method=_method(config), model=config.model, config=given, time=time.time())
            )
        # a training that was killed before its first checkpoint begins anew, after what it told: also of its baseline,
        # which is of step 0
        if self.again and not state.global_step:
            self.status("resumed", BEGINNING)
        else:
            self.status("resumed" if state.global_step else "started", state.global_step)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any
    ) -> None:
        told: dict[str, float | None] = {
            name: float(value) for name, value in (logs or {}).items() if isinstance(value, int | float)
        }
        self.writer.write(StepEntry(phase="train", step=state.global_step, metrics=told, time=time.time()))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.writer.cut()

    def status(
        self,
        status: Literal["started", "resumed", "stopped", "failed", "done"],
        step: int,
        reason: str | None = None,
    ) -> None:
        share = max(0, step) / self.config.steps if self.config.steps else None
        self.writer.write(StatusEntry(status=status, step=step, progress=share, reason=reason, time=time.time()))
        if status not in ("started", "resumed"):
            self.writer.cut()

    def generation(self, made: RolloutGeneration, step: int, records: Sequence[TurnRecord]) -> None:
        """Tells of a generation before its first step, `step`. `made`: what was played, `records`: what the stages made
        of its turns; a rollout in whose place a success stands is told as it was played."""
        self.writer.write(*self._entries(made, step, by_rollout(records, made)))

    def evaluation(
        self, phase: Literal["eval", "baseline"], step: int, scores: Scores, tried: Sequence[tuple[Task, Rollout]]
    ) -> None:
        """Tells of an evaluation when it has ended, or of the baseline before the first step."""
        chosen = self.config.evaluation
        environment = self.config.environment if chosen is None else chosen.environment or self.config.environment
        self.writer.write(*evaluation_entries(phase, step, environment, scores, tried))

    def _entries(
        self,
        made: RolloutGeneration,
        step: int,
        records: Sequence[Sequence[Sequence[TurnRecord]]],
    ) -> Iterator[Entry]:
        kept = {group.number: (index, group) for index, group in enumerate(made.groups)}
        kept |= {group.number: (UNUSED, group) for group in made.unused}
        for number, task in enumerate(made.tasks):
            index, group = kept.get(number, (0, None))
            dropped = "fewer than two valid rollouts" if group is None else None
            of_group = () if group is None or index == UNUSED else records[index]
            learns = any(each.teacher_turn is not None or each.played.replayed for turns in of_group for each in turns)
            if group is not None and not learns and not group.signal:
                dropped = FLAT
            yield GroupEntry(
                phase="train",
                step=step,
                group=number,
                task_id=task.task_id,
                seed=task.seed,
                instruction=task.instruction,
                environment=self.config.environment,
                dropped=dropped,
            )
            for at, played in enumerate(() if group is None else group.rollouts):
                assert group is not None
                place = {"phase": "train", "step": step, "group": number, "rollout": played.number}
                yield from self._turns(played, place, of_group[at] if of_group else ())
                yield from self._judged(played, place, self._pictures(made, number, played, place))
        for number, member, why in made.lost:
            yield RolloutEntry(
                phase="train",
                step=step,
                group=number,
                rollout=member,
                outcome="void",
                total=None,
                success=None,
                turns=0,
                tokens=0,
                error=why,
                time=time.time(),
            )

    def _turns(self, played: PlayedRollout, place: Mapping[str, Any], records: Sequence[TurnRecord]) -> Iterator[Entry]:
        replaced = any(record.played.replayed for record in records)
        known = records if len(records) == len(played.turns) and not replaced else [None] * len(played.turns)
        for number, (step, turn, record) in enumerate(zip(played.episode.steps, played.turns, known, strict=True)):
            yield TurnEntry(
                **place,
                turn=number,
                response=step.response or "",
                thought=step.thought,
                parse_error=step.parse_error,
                tokens=len(turn.ids),
                advantage=None if record is None else record.advantage,
                entropy=None if record is None else record.entropy,
                token_ids=list(turn.ids),
                logprobs=list(turn.logprobs),
                texts=[self.text_of(token) for token in turn.ids] if self.text_of is not None else None,
                entropies=list(record.entropies) if record is not None and record.entropies else None,
                masked=REPLACED if replaced else None if record is None else record.masked,
            )
            for count, action in enumerate(step.actions):
                refused = step.refused if count == len(step.actions) - 1 else None
                yield ActionEntry(**place, turn=number, number=count, action=action.to_json(), refused=refused)

    def _judged(self, played: PlayedRollout, place: Mapping[str, Any], screens: Sequence[Entry]) -> Iterator[Entry]:
        episode = played.episode
        yield from screens
        judged = dict(episode.metadata.get("score", {}))
        yield ValidationEntry(
            **place, by=self.config.environment, score=episode.score, success=episode.success, detail=judged
        )
        parse = sum(step.parse_error is not None for step in episode.steps)
        runtime = sum(step.refused is not None for step in episode.steps)
        yield RolloutEntry(
            **place,
            outcome="scored",
            total=played.reward,
            success=episode.success,
            turns=len(played.turns),
            tokens=sum(len(turn.ids) for turn in played.turns),
            errors={name: count for name, count in (("parse", parse), ("runtime", runtime)) if count},
            parts=dict(played.parts),
            episode=self._name(place) if screens else None,
            version=place["step"] - 1 if played.version is None else played.version,
            seconds=None if episode.duration_ms is None else episode.duration_ms / 1000,
            time=time.time(),
        )

    def _name(self, place: Mapping[str, Any]) -> str:
        return f"rollouts/{place['step']}-{place['group']}-{place['rollout']}"

    def _pictures(
        self, made: RolloutGeneration, number: int, played: PlayedRollout, place: Mapping[str, Any]
    ) -> list[ObservationEntry]:
        """Keeps the screens of a rollout, where its group is one of those. The last picture of a prompt is the present
        screen, as the model saw it."""
        if number not in [group.number for group in made.groups][: self.config.kept_groups]:
            return []
        folder = self.folder / self._name(place)
        found = []
        for at, turn in enumerate(played.turns):
            if turn.images:
                folder.mkdir(parents=True, exist_ok=True)
                turn.images[-1].save(folder / frame_name(at), format="PNG")
                size = turn.images[-1].size
                found.append(ObservationEntry(**place, turn=at, screenshot=frame_name(at), size=size))
        return found


def _method(config: RlConfig) -> str:
    if config.sdpo is None:
        return config.advantage
    return "sdpo" if config.sdpo.solved == "sdpo" else f"sdpo and {config.advantage}"
