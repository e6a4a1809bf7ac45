"""`learning_rates`: other learning rates for parts of the model, as parameter groups of the optimiser.

A schedule multiplies the rate of each group by the same factor, so that all parts warm up and fall together. Where a
step first has to be played or sampled, its rate must not be 0, as in transformers' first step of a warm-up
(`from_the_first_step`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from eval.config import ConfigError
from training.common.model.parts import VISION
from training.options import GROUPS, TrainerConfig

PROJECTOR: Final = ("merger", "deepstack_merger_list", "merger_list")  # the tower's modules that make tokens of patches
HEADS: Final = ("lm_head", "score")
SHOWN: Final = 3  # examples of names in an error


def groups_of(name: str) -> frozenset[str]:
    """The named groups of a weight: vision, projector, head or language; and lora."""
    parts = name.split(".")
    if VISION in parts:
        part = "projector" if any(word in PROJECTOR for word in parts) else "vision"
    else:
        part = "head" if any(word in HEADS for word in parts) else "language"
    return frozenset((part, "lora") if any(word.startswith("lora_") for word in parts) else (part,))


def rates_by_name(learning_rates: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    """The learning rate of each weight that has one of its own. A pattern goes before a named group.

    Raises ConfigError for a key that matches nothing, and for two of a kind that match the same weight.
    """
    trained = list(names)
    of_patterns: dict[str, str] = {}
    of_groups: dict[str, str] = {}
    for key in learning_rates:
        chosen = of_groups if key in GROUPS else of_patterns
        matched = [name for name in trained if (key in groups_of(name) if key in GROUPS else re.fullmatch(key, name))]
        if not matched:
            raise ConfigError(f"learning_rates.{key}: no trained weight belongs to it; there are {_there(trained)}")
        for name in matched:
            if name in chosen:
                raise ConfigError(f"learning_rates: {chosen[name]} and {key} both match {name}")
            chosen[name] = key
    return {name: learning_rates[key] for name, key in {**of_groups, **of_patterns}.items()}


def _there(names: list[str]) -> str:
    """The groups of the trained weights with their sizes, and the first names of each."""
    counts = Counter(group for name in names for group in groups_of(name))
    told = []
    for group, count in sorted(counts.items()):
        shown = [name for name in names if group in groups_of(name)][:SHOWN]
        told.append(f"{group} ({count}: {', '.join(shown)}{', ...' if count > SHOWN else ''})")
    return "; ".join(told)


def give_rates(trainer: Any, config: TrainerConfig) -> None:
    """Lets the trainer's optimiser, which must not exist yet, have the configured rates. Raises ConfigError."""
    if not config.learning_rates:
        return
    rates = rates_by_name(config.learning_rates, (n for n, p in trainer.model.named_parameters() if p.requires_grad))
    create = trainer.create_optimizer

    def created(model: Any = None) -> Any:
        made = trainer.optimizer is not None
        optimizer = create(model)
        if not made:
            _split(optimizer, trainer.model if model is None else model, rates)
        return optimizer

    trainer.create_optimizer = created


def _split(optimizer: Any, model: Any, rates: Mapping[str, float]) -> None:
    """Splits the parameter groups of an optimiser without state by rate; the groups' other settings stay.

    Groups of the usual rate come first: transformers logs the rate of the first group.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    before = list(optimizer.param_groups)
    optimizer.param_groups.clear()
    others = []
    for group in before:
        parts: dict[float, list[Any]] = {}
        for parameter in group["params"]:
            parts.setdefault(rates.get(names[id(parameter)], group["lr"]), []).append(parameter)
        if usual := parts.pop(group["lr"], None):
            optimizer.add_param_group({**group, "params": usual})
        others += [{**group, "params": parameters, "lr": rate} for rate, parameters in parts.items()]
    for group in others:
        optimizer.add_param_group(group)


def from_the_first_step(scheduler: Any, steps: int) -> Any:
    """torch's LambdaLR, before its first step: in step k of the `steps` of a warm-up, counted from 0, the share of the
    learning rate is (k + 1) / (steps + 1) in place of k / steps. A schedule without a warm-up stays as it is."""
    lambdas = [_risen(each, steps) for each in scheduler.lr_lambdas]
    scheduler.lr_lambdas = lambdas
    for group, base, share in zip(scheduler.optimizer.param_groups, scheduler.base_lrs, lambdas, strict=True):
        group["lr"] = base * share(scheduler.last_epoch)
    scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]
    return scheduler


def _risen(share: Callable[[int], float], steps: int) -> Callable[[int], float]:
    if not steps or share(0) != 0.0:
        return share
    return lambda step: (step + 1) / (steps + 1) if step < steps else share(step)
