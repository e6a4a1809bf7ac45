"""The training's own loss on held-out samples, over all processes: alone, with data parallelism, and with FSDP.

Each process passes its part of the batches through the model as it lies there, whole or sharded. A batch's loss is
multiplied by its share of all held-out terms (tokens, pairs), and the products are added up in float64 over batches and
processes, so that the figure is the mean over all terms, however many processes there are.

In the training, too, the gradient of several forward passes is that of one pass over their whole batch (`StepShares`).
transformers averages the losses of an optimiser step's passes, and data parallel averages those of the processes. A
mean of means is the batch's mean only where every pass has equally many terms. That is not so for a loss over tokens,
nor for the last pass of an epoch. So each pass's mean is multiplied by its share of the step's terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from training.common.model import sharding

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


Shares = dict[str, float]


class HeldOutLoss:
    """Call `measure` on all processes at once.

    trainer  a transformers Trainer, prepared for training
    places   the held-out samples: their indices, which the collator finds in rows {"index": place}
    collate  makes a batch of rows
    size     samples in a batch
    count    the terms of a batch
    loss     (model, batch, the batch's share of all terms) -> its part of the loss, a scalar
    """

    def __init__(
        self,
        trainer: Any,
        places: Sequence[int],
        collate: Callable[[list[dict[str, int]]], Mapping[str, Any]],
        size: int,
        count: Callable[[Mapping[str, Any]], Counts],
        loss: Callable[[Any, Any, Shares], Any],
    ) -> None:
        self.trainer = trainer
        self.samples = len(places)
        self.collate = collate
        self.batches = [places[first : first + size] for first in range(0, len(places), size)]
        self.count = count
        self.loss = loss
        self.terms: list[Counts] | None = None  # of each batch

    def measure(self, stop: Callable[[], bool]) -> float | None:
        """The loss; None when `stop`, which all processes are asked and must answer alike, asks for the end."""
        import torch

        trainer = self.trainer
        model, processes = trainer.model_wrapped, trainer.args.world_size
        if self.terms is None:
            self.terms = [self.count(self._batch(number)) for number in range(len(self.batches))]
        whole = {name: max(1, sum(terms[name] for terms in self.terms)) for name in self.terms[0]}
        total = torch.zeros((), dtype=torch.float64)
        was = model.training
        model.eval()
        try:
            # every process takes part in every round, because FSDP gathers a layer's weights from all of them
            for first in range(0, len(self.batches), processes):
                if stop():
                    return None
                number = first + trainer.args.process_index
                beyond = number >= len(self.batches)
                batch = trainer._prepare_inputs(dict(self._batch(0 if beyond else number)))
                terms = self.terms[0 if beyond else number]
                shares = {name: terms[name] / whole[name] for name in terms}
                with torch.no_grad(), trainer.compute_loss_context_manager():
                    part = self.loss(model, batch, shares)
                total += 0.0 if beyond else float(part)
        finally:
            model.train(was)
            sharding.reshard(model)
            getattr(trainer, "_metrics", {}).get("eval", {}).clear()  # TRL's own figures of these passes
        everywhere = trainer.accelerator.reduce(total.to(_device(trainer)), reduction="sum")
        return float(everywhere)

    def _batch(self, number: int) -> Mapping[str, Any]:
        return self.collate([{"index": index} for index in self.batches[number]])


def _device(trainer: Any) -> Any:
    """Where a sum over the processes is made: Apple's devices have no float64, and sum nothing."""
    return "cpu" if trainer.accelerator.device.type == "mps" else trainer.accelerator.device


def spread_places(samples: int, count: int) -> Sequence[int]:
    """The indices of at most `count` of the samples, evenly spread."""
    return range(samples) if samples <= count else [place * samples // count for place in range(count)]
