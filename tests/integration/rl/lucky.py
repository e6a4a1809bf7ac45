"""Environments whose scores are drawn, so that a model that knows nothing has advantages and its weights change."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from eval.desktop import Desktop, Score
from eval.environments import login
from tests.integration.rl.worlds import RightSide, Sides


class LuckyDesktop(RightSide):
    async def score(self) -> Score:
        return Score(value := random.random(), value > 0.5)


class Lucky(Sides):
    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return LuckyDesktop(login.LoginOptions(split="train"))


class OldWeights(Lucky):
    """In the worker's process vLLM keeps the weights that it began with, though it says that it took others."""

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        from training.rl.asynchronous import vllm_engine, vllm_in_process

        vllm_in_process.VllmHere.take = lambda self, file: None  # type: ignore[method-assign]
        first = vllm_engine.EngineSampler._begin

        def begin(self: vllm_engine.EngineSampler) -> None:
            if self.loaded:
                kept = min(self.loaded)
                self.loaded = dict.fromkeys(self.loaded, self.loaded[kept])
            first(self)

        vllm_engine.EngineSampler._begin = begin  # type: ignore[method-assign]
        return super().desktop(options)
