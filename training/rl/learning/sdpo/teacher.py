"""The self-teacher of SDPO: an exponential moving average of the whole student.

theta' <- (1 - rate) theta' + rate theta after each optimiser step, beginning with theta' = theta: at the start the
teacher says what the student says, also where the student has a LoRA that was trained before. Averaged is what the
student computes with: of a layer with a LoRA the product s B A, not A and B apart (the product of two averages is
another matrix). It is kept in float32, as large as the layer, and the layer's own frozen weights are shared. So a
teacher of a LoRA costs four bytes per weight of the layers that have one.

rate 0 keeps the model of the start: the fixed part of a trust region (`training.rl.learning.sdpo.loss.trust_region`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch.distributed.tensor import DTensor

from eval.config import ConfigError, ResumeError

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
