"""The training's own loss on held-out samples, over all processes: alone, with data parallelism, and with FSDP.

Each process passes its part of the batches through the model as it lies there, whole or sharded. A batch's loss is
multiplied by its share of all held-out terms (tokens, pairs), and the products are added up in float64 over batches and
processes, so that the figure is the mean over all terms, however many processes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from training.common.accumulation import Counts
from training.common.model import sharding

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
