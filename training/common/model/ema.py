"""`ema`: an exponential moving average of the trained weights (Polyak and Juditsky 1992; Tarvainen and Valpola 2017).

It begins with the weights that the training begins with, and after each optimiser step it becomes
ema * average + (1 - ema) * weights, in float32. With FSDP each process averages its own shards. A checkpoint holds the
average beside the weights; the training goes on with the weights, and evaluations and model/ take the average.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary, proxy

import torch
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from eval.config import ConfigError, ResumeError
from training.common.checkpoints import also_save
from training.common.model import sharding

EMA: Final = "ema.safetensors"  # in a checkpoint: the averages, by the names of their weights
START: Final = 0.05  # the share of the weights of the start in the final average from which on the user is warned
_averages: WeakKeyDictionary[Any, Average] = WeakKeyDictionary()  # by model


class Average(TrainerCallback):  # type: ignore[misc]
    """The average of one training, from its begin on.

    resume  the checkpoint that the training goes on from, or None
    """

    def __init__(self, trainer: Any, decay: float, resume: str | None) -> None:
        self.trainer = proxy(trainer)  # what `_averages` holds must not keep its key alive
        self.decay = decay
        self.resume = resume
        self.values: dict[str, torch.Tensor] = {}  # this process's part of each average
        also_save(trainer, self.save)  # all processes call it

    @torch.no_grad()
    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Any, **kwargs: Any
    ) -> None:
        if self.trainer.is_fsdp_enabled and not sharding.is_sharded(model):
            raise ConfigError("ema: takes FSDP 2 only; set fsdp_version: 2 in accelerate's configuration")
        _averages[model] = self
        if self.resume is None:
            self.values = {name: _local(weight).clone() for name, weight in _trained(model)}
        else:
            averages = read(Path(self.resume))
            self.values = {name: _part(averages[name], weight) for name, weight in _trained(model)}
        left = self.decay**state.max_steps
        if left > START and state.is_world_process_zero and self.resume is None:
            print(
                f"warning: ema: after {state.max_steps} steps the average is still {left:.0%} the weights of the start;"
                f" lower it, say to {1 - 3 / max(4, state.max_steps):.3g}",
                flush=True,
            )

    @torch.no_grad()
    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Any, **kwargs: Any
    ) -> None:
        for name, weight in _trained(model):
            self.values[name].lerp_(_local(weight), 1 - self.decay)

    @torch.no_grad()
    def exchange(self, model: Any) -> None:
        """The model gets the average, and the average the model's weights, or back: both are float32."""
        for name, weight in _trained(model):
            here, there = _local(weight), self.values[name]
            kept = here.clone()
            here.copy_(there)
            there.copy_(kept)
        sharding.reshard(model)

    @torch.no_grad()
    def save(self, checkpoint: Path) -> None:
        """Writes the averages into a checkpoint. All processes must call it; the first one writes."""
        from safetensors.torch import save_file

        whole = {}
        for name, weight in _trained(self.trainer.model):
            value = self.values[name]
            if isinstance(weight, DTensor):
                shards = DTensor.from_local(
                    value, weight.device_mesh, weight.placements, shape=weight.shape, stride=weight.stride()
                )
                value = shards.full_tensor()
            if self.trainer.args.should_save:
                whole[name] = value.to("cpu", copy=True).contiguous()
        if self.trainer.args.should_save:
            save_file(whole, checkpoint / EMA)


@contextmanager
def averaged(model: Any) -> Iterator[None]:
    """The model with the average as its weights, where its training keeps one. All processes that share the model's
    shards must enter it."""
    average = _averages.get(model)
    if average is None:
        yield
        return
    average.exchange(model)
    try:
        yield
    finally:
        average.exchange(model)


def take_average(model: Any) -> None:
    """Leaves the average in the model, at the end of a training that keeps one."""
    if (average := _averages.pop(model, None)) is not None:
        average.exchange(model)


def read(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The averages in a checkpoint. Raises ConfigError."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(checkpoint / EMA))
    except (OSError, SafetensorError) as error:
        raise ResumeError(f"resume: {checkpoint / EMA} cannot be read: {error}") from None


@torch.no_grad()
def load_average(model: Any, checkpoint: Path) -> None:
    """Loads a checkpoint's averages, if it has any, into a model that is not sharded. Raises ConfigError."""
    if (checkpoint / EMA).is_file():
        averages = read(checkpoint)
        for name, weight in _trained(model):
            weight.copy_(averages[name])


def _trained(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, weight.detach()) for name, weight in model.named_parameters() if weight.requires_grad)


def _local(weight: torch.Tensor) -> torch.Tensor:
    """This process's part of a weight: the memory itself, no copy."""
    return weight.to_local() if isinstance(weight, DTensor) else weight


def _part(whole: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """This process's part of a whole tensor, on the weight's device."""
    whole = whole.to(weight.device)
    if not isinstance(weight, DTensor):
        return whole
    return distribute_tensor(whole, weight.device_mesh, weight.placements, src_data_rank=None).to_local().clone()
