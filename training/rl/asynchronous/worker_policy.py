"""The policy of the process that plays rollouts: it takes new weights between two answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from eval.agents.base import Decision, History
from eval.agents.transformers import Ready
from eval.desktop import Desktop, Observation
from training.rl.config import RlConfig
from training.rl.rollouts.filters import SamplingFilters
from training.rl.rollouts.policy import Policy
from training.rl.rollouts.starts import desktop_maker
from training.rl.weights.published import take_weights


class WorkerPolicy(Policy):
    """A policy whose weights change between two calls of the model: each answer is of exactly one version."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.version: int = -1
        self._newest: tuple[int, str] | None = None
        self._lock = threading.Lock()

    def follow(self, version: int, file: str) -> None:
        """Takes these weights before the next answer."""
        with self._lock:
            self._newest = (version, file)

    def _catch_up(self) -> None:
        while True:
            with self._lock:
                newest = self._newest
            if newest is None or newest[0] == self.version:
                return
            try:
                take_weights(self.model, Path(newest[1]))
            except FileNotFoundError:
                if newest == self._newest:
                    raise
                continue  # a newer one has come meanwhile, and this one is gone
            self.version = newest[0]

    def _act(
        self,
        observations: Sequence[Observation],
        histories: Sequence[History],
        ready: Ready = lambda *_: None,
        stopped: Any = None,
    ) -> list[Decision]:
        self._catch_up()
        return super()._act(observations, histories, ready, stopped)


def make_worker_policy(config: RlConfig, folder: str) -> tuple[Any, Callable[[], Desktop]]:
    """The worker's policy and its desktops. The model is made as the training makes its own. `folder`: where the
    weights are published. Raises ConfigError, InfraError."""
    from training.common.model.adapter import lora
    from training.common.model.loading import load_model, load_processor
    from training.common.model.sharding import float32_masters

    assert config.asynchronous is not None
    make_desktop = desktop_maker(config)
    if config.asynchronous.vllm is not None:
        from training.rl.asynchronous.vllm_in_process import make_vllm_policy

        return make_vllm_policy(config, folder), make_desktop
    model, _ = load_model(config)
    if (adapter := lora(config, model)) is not None:
        from peft import get_peft_model

        model = get_peft_model(model, adapter)
    float32_masters(model, config)
    device = config.asynchronous.device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = model.to(device)
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    if config.precision == "bf16":
        autocast = partial(torch.autocast, torch.device(device).type, dtype=torch.bfloat16)
    policy = WorkerPolicy(
        (model, load_processor(config.model, config.max_pixels, config.min_pixels)),
        config.prompt.builder(),
        temperature=config.temperature,
        max_new_tokens=config.max_completion,
        batch_size=config.batch_size,
        autocast=autocast,
        filters=SamplingFilters.of(config),
    )
    return policy, make_desktop
