"""transformers' Trainer for preference pairs, and the collator that feeds it. Imports torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer

from eval.config import ConfigError
from eval.config.progress import metric
from training.common.measuring.validation import HeldOutLoss, StepShares, spread_places
from training.common.reporting import leave_sigterm_to_the_trainer
from training.data.faults import BadSample
from training.data.pairs.store import Pairs
from training.data.samples import open_image
from training.reward.model import encode, with_response
from training.reward.network import bradley_terry


class RewardCollator:
    """Called with rows that hold the `index` of their pair; returns the network's inputs for all chosen answers, then
    all rejected ones: (2 x pairs, tokens), padded on the right. Images are opened once per pair."""

    def __init__(self, processor: Any, pairs: Pairs) -> None:
        self.processor = processor
        self.pairs = pairs

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Raises ConfigError for an image that was damaged after the pairs were checked."""
        leave_sigterm_to_the_trainer()
        indices = [int(row["index"]) for row in rows]
        pairs = [self.pairs[index] for index in indices]
        chats = [with_response(pair.prompt, pair.chosen) for pair in pairs]
        chats += [with_response(pair.prompt, pair.rejected) for pair in pairs]
        try:
            images = [[open_image(path) for path in self.pairs.images(pair)] for pair in pairs]
        except BadSample as fault:
            raise ConfigError(f"pairs: {fault}") from None
        return encode(self.processor, chats, images * 2)


class RewardTrainer(Trainer):  # type: ignore[misc]
    """The Bradley-Terry loss over a RewardNetwork. Raises ConfigError for a loss that is not finite, at its step."""

    def __init__(self, *, centring: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.centring = centring
        self.model_accepts_loss_kwargs = False  # the loss is a mean: `shares` and the trainer average the passes
        self.shares = StepShares(self, _pairs)
        self._seen: dict[str, list[Tensor]] = defaultdict(list)
        self._total_train_tokens = 0  # of all processes, as TRL's trainers count

    def held_out_loss(self, pairs: Pairs, count: int) -> HeldOutLoss:
        """The loss on at most `count` held-out pairs, evenly spread."""
        return HeldOutLoss(
            self,
            spread_places(len(pairs), count),
            RewardCollator(self.processing_class, pairs),
            self.args.per_device_train_batch_size,
            _pairs,
            lambda model, batch, shares: self.compute_loss(model, batch).double() * shares["pairs"],
        )

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        rewards: Tensor = model(**inputs)
        chosen, rejected = rewards.chunk(2)
        loss = bradley_terry(chosen, rejected, self.centring)
        if not bool(torch.isfinite(loss)):
            raise ConfigError(
                f"step {self.state.global_step + 1}: the loss is {loss.item()}: lower learning_rate, or look at the "
                f"data; rewards from {rewards.min().item():g} to {rewards.max().item():g}"
            )
        if model.training:
            margin = (chosen - rejected).detach()
            self._seen["accuracy"].append((margin > 0).float().mean())
            self._seen["margin"].append(margin.mean())
            self._seen["reward"].append(rewards.detach().mean())
            seen = self.accelerator.reduce(inputs["attention_mask"].sum(), reduction="sum")
            self._total_train_tokens += int(seen)
            loss = loss * self.shares.factors(inputs)["pairs"]
        return (loss, rewards) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs and self._seen:
            means = torch.stack([torch.stack(values).mean() for values in self._seen.values()])
            means = self.accelerator.gather(means.unsqueeze(0)).mean(dim=0)
            logs |= dict(zip(self._seen, means.tolist(), strict=True))
            logs["num_tokens"] = float(self._total_train_tokens)
            if self.is_world_process_zero():
                for name in self._seen:
                    metric(self.state.global_step, f"train/{name}", logs[name])
            self._seen.clear()
        super().log(logs, start_time)


def _pairs(batch: Mapping[str, Any]) -> dict[str, int]:
    """The pairs of a batch."""
    return {"pairs": len(batch["input_ids"]) // 2}
