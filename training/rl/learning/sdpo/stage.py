"""SDPO in the trainer: its teacher over the steps and checkpoints, and its prompts for the turns of a generation.

The teacher is an exponential moving average of the whole student: theta' <- (1 - rate) theta' + rate theta after each
optimiser step, beginning with theta' = theta. At the start the teacher says what the student says, also where the
student has a LoRA that was trained before. Averaged is what the student computes with: of a layer with a LoRA the
product s B A, not A and B apart (the product of two averages is another matrix). It is kept in float32, as large as the
layer, and the layer's own frozen weights are shared. So a teacher of a LoRA costs four bytes per weight of the layers
that have one. rate 0 keeps the model of the start: the fixed part of a trust region
(`training.rl.learning.sdpo.loss.trust_region`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal
from weakref import proxy

import torch
from PIL import Image
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from eval.config import ConfigError, ResumeError
from eval.episodes import frame_name
from eval.prompts.demonstrations import Demonstration
from training.common.checkpoints import also_save
from training.rl.learning.loss_rows import Pictures
from training.rl.learning.sdpo.prompts import TriedEpisode, teacher_demonstration
from training.rl.learning.turn_records import TurnRecord, by_rollout
from training.rl.rollouts.generation import AskedTurn, PlayedRollout
from training.rl.rollouts.policy import Policy
from training.rl.sections import SdpoConfig

RATE: Final = 0.05  # the paper's; .01 for code


class SelfTeacher:
    """The average of one student. Not for models in shards.

    Raises ConfigError for weights in shards, and for a LoRA that is no sum of its layer and a product: DoRA, or a
    LoRA on anything but linear layers.
    """

    def __init__(self, student: Any, rate: float = RATE) -> None:
        if not 0 <= rate <= 1:
            raise ConfigError(f"teacher.rate: {rate} is not from 0 to 1")
        self.student = student
        self.rate = rate
        self.layers = _lora_layers(student)
        within = {id(weight) for layer in self.layers.values() for weight in layer.parameters()}
        self.plain = {
            name: weight
            for name, weight in student.named_parameters()
            if weight.requires_grad and id(weight) not in within
        }
        if any(isinstance(weight, DTensor) for weight in student.parameters()):
            raise ConfigError("teacher: the weights are in shards; a self-teacher needs a whole model on each device")
        self.values = self._now()

    @torch.no_grad()
    def _now(self) -> dict[str, torch.Tensor]:
        found = {name: weight.detach().float().clone() for name, weight in self.plain.items()}
        return found | {name: _product(layer) for name, layer in self.layers.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Call it after each optimiser step."""
        if not self.rate:
            return
        for name, weight in self.plain.items():
            self.values[name].lerp_(weight.detach().float(), self.rate)
        for name, layer in self.layers.items():
            self.values[name].lerp_(_product(layer), self.rate)

    @contextmanager
    def teaching(self) -> Iterator[Any]:
        """Inside, the student's model computes as the teacher: without gradients and dropout. After it, the student is
        what it was, to the bit."""
        model, training = self.student, {module: module.training for module in self.student.modules()}
        kept: dict[str, torch.Tensor] = {}
        with ExitStack() as stack, torch.no_grad():
            stack.callback(_set_training, training)
            stack.callback(self._give_back, kept)
            model.eval()
            for name, weight in self.plain.items():
                kept[name] = weight.detach().clone()
                weight.copy_(self.values[name])
            for name, layer in self.layers.items():
                stack.callback(setattr, layer, "_disable_adapters", layer.disable_adapters)
                layer._disable_adapters = True  # its `enable_adapters` would also change what is trained
                stack.callback(layer.register_forward_hook(_adding(self.values[name])).remove)
            yield model

    @torch.no_grad()
    def _give_back(self, kept: Mapping[str, torch.Tensor]) -> None:
        for name, weight in kept.items():
            self.plain[name].copy_(weight)

    def state(self) -> dict[str, torch.Tensor]:
        """What a checkpoint keeps."""
        return dict(self.values)

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Goes on with a checkpoint's average. Raises ConfigError for that of another model."""
        if {name: value.shape for name, value in state.items()} != {n: v.shape for n, v in self.values.items()}:
            raise ResumeError("resume: the checkpoint's teacher has other weights than this model's")
        for name, value in state.items():
            self.values[name].copy_(value)


def _set_training(modes: Mapping[torch.nn.Module, bool]) -> None:
    for module, mode in modes.items():
        module.training = mode


def _lora_layers(model: Any) -> dict[str, Any]:
    from peft.tuners.lora import LoraLayer

    found = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    for name, layer in found.items():
        if any(layer.use_dora.values()) or not isinstance(layer.get_base_layer(), torch.nn.Linear):
            raise ConfigError(f"teacher: {name}: allowed is a LoRA on linear layers, without DoRA")
        if layer.merged:
            raise ConfigError(f"teacher: {name}: its LoRA is merged")
    return found


def _product(layer: Any) -> torch.Tensor:
    """The sum of s B A over the layer's active adapters, (out, in) in float32."""
    parts = []
    for name in layer.active_adapters:
        if name in layer.lora_A:
            first, second = layer.lora_A[name].weight.float(), layer.lora_B[name].weight.float()
            parts.append(second @ first * layer.scaling[name])
    base = layer.get_base_layer()
    if not parts:
        shape = (base.out_features, base.in_features)
        return torch.zeros(shape, device=next(base.parameters()).device)
    return torch.stack(parts).sum(0).detach()


def _adding(product: torch.Tensor) -> Any:
    def hook(_: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        given = inputs[0]
        return output + torch.nn.functional.linear(given.float(), product).to(output.dtype)

    return hook


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
