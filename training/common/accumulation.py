"""The gradient of several forward passes is that of one pass over their whole batch.

transformers averages the losses of an optimiser step's passes, and data parallel averages those of the processes. A
mean of means is the batch's mean only where every pass has equally many terms. That is not so for a loss over tokens,
whose number differs from sample to sample, nor for the last pass of an epoch. So each pass's mean is multiplied by its
share of the step's terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

Counts = dict[str, int]  # the number of a batch's terms, by name


class StepShares:
    """How large a share each pass has in its optimiser step, over all passes and processes.

    trainer  a transformers Trainer that divides each pass's loss by the number of passes
    count    the terms of one batch
    """

    def __init__(self, trainer: Any, count: Callable[[Mapping[str, Any]], Counts]) -> None:
        self.trainer = trainer
        self.count = count
        self.whole: dict[str, float] = {}
        collect = trainer.get_batch_samples

        def collected(epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> tuple[list[Any], Any]:
            batches, items = collect(epoch_iterator, num_batches, device)
            self.begin([count(batch) for batch in batches])
            return batches, items

        trainer.get_batch_samples = collected

    def begin(self, passes: list[Counts]) -> None:
        """Adds up the terms of an optimiser step. All processes must call it."""
        import torch

        names = sorted(passes[0]) if passes else []
        sums = torch.tensor([float(sum(terms[name] for terms in passes)) for name in names])
        everywhere: Tensor = self.trainer.accelerator.reduce(sums.to(self.trainer.accelerator.device), reduction="sum")
        self.whole = dict(zip(names, everywhere.tolist(), strict=True))

    def factors(self, batch: Mapping[str, Any]) -> dict[str, float]:
        """What the mean over each of this pass's terms is multiplied by; 1 outside a training."""
        if not self.whole:
            return dict.fromkeys(self.count(batch), 1.0)
        times = self.trainer.current_gradient_accumulation_steps * self.trainer.accelerator.num_processes
        return {name: terms * times / max(self.whole[name], 1.0) for name, terms in self.count(batch).items()}
