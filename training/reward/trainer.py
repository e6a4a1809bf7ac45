"""transformers' Trainer for preference pairs and for judged episodes, and the collators that feed it. Imports torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import torch
from torch import Tensor
from transformers import Trainer

from eval.config import ConfigError
from eval.config.progress import metric
from training.common.accumulation import StepShares
from training.common.measuring.validation import HeldOutLoss, spread_places
from training.common.reporting import leave_sigterm_to_the_trainer
from training.data.faults import BadSample
from training.data.pairs.store import Pairs
from training.data.samples import open_image, open_images
from training.reward.episodes import JudgedEpisode
from training.reward.model import encode, with_response
from training.reward.network import bradley_terry

SOLVED: Final = "solved"  # of a batch: 1 or 0 for each episode


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


class OutcomeCollator:
    """As RewardCollator, of judged episodes: a chat for each, and under SOLVED how it ended."""

    def __init__(self, processor: Any, episodes: Sequence[JudgedEpisode]) -> None:
        self.processor = processor
        self.episodes = episodes

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Raises ConfigError for an image that was damaged after the episodes were checked."""
        leave_sigterm_to_the_trainer()
        episodes = [self.episodes[int(row["index"])] for row in rows]
        try:
            images = [open_images(each.asked) for each in episodes]
        except BadSample as fault:
            raise ConfigError(f"episodes: {fault}") from None
        batch = encode(self.processor, [each.asked.messages for each in episodes], images)
        return {**batch, SOLVED: torch.tensor([float(each.solved) for each in episodes])}


class RewardTrainer(Trainer):  # type: ignore[misc]
    """The Bradley-Terry loss over a RewardNetwork. Raises ConfigError for a loss that is not finite, at its step."""

    chats: ClassVar[int] = 2  # of a sample

    def __init__(self, *, centring: float = 0.0, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.centring = centring
        self.model_accepts_loss_kwargs = False  # the loss is a mean: `shares` and the trainer average the passes
        self.shares = StepShares(self, self.samples)
        self._seen: dict[str, list[Tensor]] = defaultdict(list)
        self._total_train_tokens = 0  # of all processes, as TRL's trainers count

    def samples(self, batch: Mapping[str, Any]) -> dict[str, int]:
        """How many are in a batch."""
        return {"samples": len(batch["input_ids"]) // self.chats}

    def held_out_loss(self, held_out: Sequence[Any], count: int) -> HeldOutLoss:
        """The loss on at most `count` held-out samples, evenly spread."""
        return HeldOutLoss(
            self,
            spread_places(len(held_out), count),
            type(self.data_collator)(self.processing_class, held_out),
            self.args.per_device_train_batch_size,
            self.samples,
            lambda model, batch, shares: self.compute_loss(model, batch).double() * shares["samples"],
        )

    def judged(self, rewards: Tensor, inputs: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """(the mean loss of a batch's samples, figures of it)"""
        chosen, rejected = rewards.chunk(2)
        margin = (chosen - rejected).detach()
        told = {"accuracy": (margin > 0).float().mean(), "margin": margin.mean()}
        return bradley_terry(chosen, rejected, self.centring), told

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        rewards: Tensor = model(**{name: value for name, value in inputs.items() if name != SOLVED})
        loss, told = self.judged(rewards, inputs)
        if not bool(torch.isfinite(loss)):
            raise ConfigError(
                f"step {self.state.global_step + 1}: the loss is {loss.item()}: lower learning_rate, or look at the "
                f"data; rewards from {rewards.min().item():g} to {rewards.max().item():g}"
            )
        if model.training:
            for name, value in (*told.items(), ("reward", rewards.detach().mean())):
                self._seen[name].append(value)
            seen = self.accelerator.reduce(inputs["attention_mask"].sum(), reduction="sum")
            self._total_train_tokens += int(seen)
            loss = loss * self.shares.factors(inputs)["samples"]
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


class OutcomeTrainer(RewardTrainer):
    """The cross-entropy of judged episodes: a reward is the logit of the probability of `solved`."""

    chats: ClassVar[int] = 1

    def judged(self, rewards: Tensor, inputs: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        solved = inputs[SOLVED].to(rewards.dtype)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(rewards, solved)
        return loss, {"accuracy": ((rewards.detach() > 0) == (solved > 0)).float().mean()}
