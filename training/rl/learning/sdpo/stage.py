"""SDPO in the trainer: its teacher over the steps and checkpoints, and its prompts for the turns of a generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal
from weakref import proxy

import torch
from PIL import Image
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from eval.config import ResumeError
from eval.episodes import frame_name
from eval.prompts.demonstrations import Demonstration
from training.common.checkpoints import also_save
from training.rl.learning.loss_rows import Pictures
from training.rl.learning.sdpo.prompts import TriedEpisode, teacher_demonstration
from training.rl.learning.sdpo.teacher import SelfTeacher
from training.rl.learning.turn_records import TurnRecord, by_rollout
from training.rl.rollouts.generation import AskedTurn, PlayedRollout
from training.rl.rollouts.policy import Policy
from training.rl.sections import SdpoConfig

TEACHER: Final = "teacher.safetensors"  # in a checkpoint
NO_HINDSIGHT: Final = "the teacher has nothing to tell of it"
LOST: Final = 0.1  # nats: measured were .006 of a start that had seen such prompts, and .37 of one that had not


class TeacherCallback(TrainerCallback):  # type: ignore[misc]
    """The teacher of one training: the model of its start, which follows the model step by step.

    trainer  whose checkpoints hold the teacher, too
    resume   tells the checkpoint that the training goes on from, or None
    """

    def __init__(self, trainer: Any, config: SdpoConfig, resume: Callable[[], str | None]) -> None:
        self.trainer = proxy(trainer)
        self.config = config
        self.resume = resume
        self.teacher: SelfTeacher | None = None
        also_save(trainer, self.save)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Raises ConfigError."""
        self.teacher = SelfTeacher(self.trainer.model, self.config.rate)
        if (checkpoint := self.resume()) is not None:
            self.teacher.restore(read(Path(checkpoint)))

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.teacher is not None:
            self.teacher.update()

    def save(self, checkpoint: Path) -> None:
        from safetensors.torch import save_file

        if self.teacher is not None:
            held = self.teacher.state()
            save_file({name: value.cpu().contiguous() for name, value in held.items()}, checkpoint / TEACHER)


def read(checkpoint: Path) -> dict[str, torch.Tensor]:
    """A checkpoint's teacher. Raises ConfigError."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(checkpoint / TEACHER))
    except (OSError, SafetensorError) as error:
        raise ResumeError(f"resume: {checkpoint / TEACHER} cannot be read: {error}") from None


@dataclass(frozen=True)
class SdpoSettings:
    """
    solved    `SdpoConfig.solved`
    policy    whose prompts these are
    pictures  checks the teacher's
    """

    solved: Literal["sdpo", "grpo"]
    policy: Policy
    pictures: Pictures


def with_teacher_turns(records: Sequence[TurnRecord], settings: SdpoSettings) -> list[TurnRecord]:
    """The stage of SDPO: each turn's answer under the teacher's prompt. Left out are turns that learn from
    nothing: from no advantage, and no teacher who has something to tell."""
    done = list(records)
    made = records[0].made
    for group, rollouts in zip(made.groups, by_rollout(records, made), strict=True):
        tried = [_tried(played) for played in group.rollouts]
        for index, (played, turns) in enumerate(zip(group.rollouts, rollouts, strict=True)):
            if settings.solved == "grpo" and played.episode.success:
                continue
            told = teacher_demonstration(index, tried, settings.policy.builder)
            for record, asked in zip(turns, played.asked, strict=True):
                if record.masked is None:
                    done[record.number] = _with_teacher_turn(record, told, asked, settings)
    return done


def _with_teacher_turn(
    record: TurnRecord, told: Demonstration | None, asked: AskedTurn, settings: SdpoSettings
) -> TurnRecord:
    if told is None:
        return replace(record, masked=NO_HINDSIGHT)
    record = replace(record, shown="success" if told.failed is None else "failure")
    prompt, images = settings.policy.prompt(asked.observation, asked.history, told)
    teacher_turn = replace(record.turn, prompt_ids=prompt, images=images)
    if (fault := settings.pictures.fault(replace(record, turn=teacher_turn))) is None:
        return replace(record, teacher_turn=teacher_turn)
    print(f"generation {record.made.number}: left out: the teacher's prompt of {fault}", flush=True)
    return replace(record, masked=NO_HINDSIGHT)


def mean_figures(sums: Sequence[tuple[float, float, int]]) -> dict[str, float]:
    """By name, the means of a step, nats. sums: of each pass the sum of the divergence over its tokens, that of the
    student's entropy, and the tokens."""
    divergence, entropy, tokens = (sum(each) for each in zip(*sums, strict=True)) if sums else (0.0, 0.0, 0)
    return {"divergence": divergence / tokens, "entropy_taught": entropy / tokens} if tokens else {}


def divergence_warning(divergence: float) -> str:
    """What the divergence of the first step means, where student and teacher have the same weights; "" where nothing is
    wrong."""
    if divergence <= LOST:
        return ""
    return (
        f"sdpo: the teacher is the student with a longer prompt, and differs from it by {divergence:.2g} nats a token: "
        "it does not understand what it is shown, and will teach noise. Start from an SFT with demonstrations in its "
        "prompts (prompt.demonstration)"
    )


@dataclass(frozen=True)
class _Screen:
    """A screen in memory, as a demonstration refers to it; two are equal where their pixels are."""

    image: Image.Image

    def open(self) -> Image.Image:
        return self.image

    def measure(self) -> tuple[int, int]:
        """Width and height."""
        return self.image.size


def _tried(played: PlayedRollout) -> TriedEpisode:
    steps = played.episode.steps
    frames = {
        step.screenshot: _Screen(asked.observation.image) for step, asked in zip(steps, played.asked, strict=True)
    }
    if played.end is not None:
        frames[frame_name(len(steps))] = _Screen(played.end.image)
    first = played.asked[0].observation.tree if played.asked else None
    last = None if played.end is None else played.end.tree
    return TriedEpisode(played.episode, frames.__getitem__, first, last)
