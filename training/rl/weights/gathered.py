"""Published weights of a model that several processes hold, whole in each or in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from training.common.model import sharding
from training.rl.learning.ranks import TrainingRanks
from training.rl.weights.published import PublishedWeights, read_weights, trained


class WeightActs:
    """The acts on the trained weights that a model of several processes has, whole in each or in shards."""

    def __init__(self, model: Callable[[], Any]) -> None:
        self._model = model  # what is sharded may be another object than what the trainer was given
        self.held: dict[str, Tensor] = {}

    @property
    def model(self) -> Any:
        return self._model()

    def gather(self) -> dict[str, Tensor]:
        """The whole weights, in the first process's memory."""
        found = {}
        for name, weight in trained(self.model).items():
            whole = weight.detach()
            whole = whole.full_tensor() if hasattr(whole, "full_tensor") else whole
            if distributed.get_rank() == 0:
                found[name] = whole.cpu()
        return found

    def take(self, file: str) -> None:
        """The model gets published weights; the first process reads them."""
        self.held = {name: weight.detach().clone() for name, weight in trained(self.model).items()}
        sharding.load_sharded(self.model, lambda: read_weights(self.model, Path(file)))
        sharding.reshard(self.model)

    def give_back(self) -> None:
        """The model gets its own weights again, to the bit."""
        with torch.no_grad():
            for name, weight in trained(self.model).items():
                weight.copy_(self.held[name])
        self.held = {}
        sharding.reshard(self.model)


class GatheredWeights(PublishedWeights):
    """Published by the first of several processes."""

    def __init__(self, model: Any, folder: Path, kept: int, ranks: TrainingRanks) -> None:
        super().__init__(model, folder, kept)
        self.ranks = ranks

    def whole(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = self.ranks.run("gather")
        return found

    @contextmanager
    def at(self, version: int) -> Iterator[None]:
        if version == self.version:
            yield
            return
        self.ranks.run("take", str(self.file(version)))
        try:
            yield
        finally:
            self.ranks.run("give_back")
