"""PPO's critic: what return is still to come before each sampled token, and how it learns that.

It is a network of its own: the body of the model of the start, and a head with one number. Its head begins at 0, so
that the first values say nothing. Definitions: docs/explanation/algorithms.md.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from weakref import proxy

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from eval.config import ResumeError
from training.common.checkpoints import also_save
from training.rl.config import RlConfig
from training.rl.learning.advantages import decoupled_gae
from training.rl.learning.kl import costs_of
from training.rl.learning.loss_rows import LossRow, parts
from training.rl.learning.turn_records import TurnRecord, learnt
from training.rl.sections import CriticConfig, KlConfig

CRITIC: Final = "critic.pt"  # in a checkpoint: weights, and the state of their optimiser


class ValueNetwork(torch.nn.Module):
    """`body` gives hidden states. Values are those of the places from which the sampled tokens were drawn."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body
        self.head = torch.nn.Linear(body.config.get_text_config().hidden_size, 1)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self.head.to(device=body.device, dtype=torch.float32)

    def forward(self, made: Mapping[str, Any]) -> Tensor:
        """(B, T + 1), float32, before each token and after the last, from what `loss_rows.tensors` makes of rows."""
        seen = {name: made[name] for name in ("pixel_values", "image_grid_thw", "mm_token_type_ids") if name in made}
        hidden = self.body(
            input_ids=torch.cat([made["prompt_ids"], made["completion_ids"]], dim=1),
            attention_mask=torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1),
            use_cache=False,
            **seen,
        ).last_hidden_state
        long = made["completion_ids"].size(1)
        found: Tensor = self.head(hidden[:, -long - 1 :].to(self.head.weight.dtype)).squeeze(-1)
        return found.float()


class ValueLearning(TrainerCallback):  # type: ignore[misc]
    """The critic of one training.

    trainer  whose checkpoints hold it
    network  made when the training begins
    resume   tells the checkpoint that the training goes on from, or None
    """

    def __init__(
        self, trainer: Any, config: RlConfig, network: Callable[[], ValueNetwork], resume: Callable[[], str | None]
    ) -> None:
        assert config.critic is not None
        self.trainer = proxy(trainer)
        self.config = config
        self.chosen: CriticConfig = config.critic
        self.make = network
        self.resume = resume
        self.network: ValueNetwork | None = None
        self.optimizer: Any = None
        self.figures: dict[str, float] = {}
        also_save(trainer, self.save)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Raises ConfigError."""
        self.network = self.make().to(self.trainer.accelerator.device)
        self.network.train()
        for weight in self.network.parameters():
            weight.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=self.chosen.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        if (checkpoint := self.resume()) is not None:
            place = Path(checkpoint) / CRITIC
            try:
                held = torch.load(place, map_location=self.trainer.accelerator.device, weights_only=True)
                self.network.load_state_dict(held["network"])
                self.optimizer.load_state_dict(held["optimizer"])
            except (OSError, RuntimeError, KeyError, ValueError) as error:
                raise ResumeError(f"resume: {place} cannot be read: {error}") from None

    def save(self, checkpoint: Path) -> None:
        if self.network is not None:
            held = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save(held, checkpoint / CRITIC)

    def only(self, number: int) -> bool:
        """Whether in this generation only the critic learns."""
        return number < self.chosen.pretrain

    def values(self, rows: Sequence[LossRow]) -> list[list[float]]:
        """Before each of a row's sampled tokens, and after the last one."""
        assert self.network is not None
        found: list[list[float]] = []
        for some in parts(rows, self.config.batch_size):
            with torch.no_grad(), self.trainer.accelerator.autocast():
                made = self.network(self.trainer.inputs(some))
            found += [line[: len(row.turn.ids) + 1].tolist() for row, line in zip(some, made, strict=True)]
        return found

    def credited(self, records: Sequence[TurnRecord]) -> list[TurnRecord]:
        """The stage: each token's advantage, by the values of before; then the critic learns from the records."""
        own = learnt(records)
        whole = self.values(own)
        values, after = [line[:-1] for line in whole], [line[-1] for line in whole]
        gains, targets = token_credit(own, values, self.chosen, self.config.kl, after)
        self.learn(own, values, targets)
        if self.config.scale_rewards == "group":
            gains = whitened(gains)
        done = list(records)
        for record, line in zip(own, gains, strict=True):
            done[record.number] = replace(record, gains=tuple(line))
        return done

    def learn(
        self, records: Sequence[TurnRecord], values: Sequence[Sequence[float]], targets: Sequence[Sequence[float]]
    ) -> None:
        """Goes through a generation's records; `figures` are of it afterwards. `values`: what it said before."""
        losses = []
        for turn in range(self.chosen.epochs):
            order = list(range(len(records)))
            random.Random(f"{self.config.seed} critic {records[0].made.number} {turn}").shuffle(order)
            for some in parts(order, self.config.batch_size):
                rows, lines = [records[each] for each in some], [targets[each] for each in some]
                losses.append(self._step(rows, lines, [values[each] for each in some]))
        flat = list(itertools.chain.from_iterable(targets))
        said = list(itertools.chain.from_iterable(values))
        self.figures = {
            "value_loss": sum(losses) / len(losses),
            "value_mean": sum(said) / len(said),
            "explained": _explained(said, flat),
        }

    def _step(
        self, rows: Sequence[LossRow], targets: Sequence[Sequence[float]], values: Sequence[Sequence[float]]
    ) -> float:
        assert self.network is not None
        made = self.trainer.inputs(rows)
        mask = made["completion_mask"]
        wanted, before = torch.zeros(mask.shape, device=mask.device), torch.zeros(mask.shape, device=mask.device)
        for place, (line, old) in enumerate(zip(targets, values, strict=True)):
            wanted[place, : len(line)], before[place, : len(old)] = torch.tensor(line), torch.tensor(old)
        self.optimizer.zero_grad()
        with self.trainer.accelerator.autocast():
            said = self.network(made)[:, :-1]
        loss: Any = value_loss(said, wanted, before, mask, self.chosen.value_clip)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        return float(loss.detach())


def value_loss(said: Tensor, wanted: Tensor, before: Tensor, mask: Tensor, clip: float | None) -> Tensor:
    """Half the mean squared error of the values at tokens with mask 1, all (B, T).

    With `clip`, a token's error is the larger one of those of its value and of the value at most so far from that of
    before. Source: PPO, as verl has it.
    """
    apart = (said - wanted) ** 2
    if clip is not None:
        within = torch.minimum(torch.maximum(said, before - clip), before + clip)
        apart = torch.maximum(apart, (within - wanted) ** 2)
    return (0.5 * apart * mask).sum() / mask.sum()


def token_credit(
    records: Sequence[TurnRecord],
    values: Sequence[Sequence[float]],
    config: CriticConfig,
    kl: KlConfig | None = None,
    after: Sequence[float] | None = None,
) -> tuple[list[list[float]], list[list[float]]]:
    """(advantages, the critic's targets) of each record's sampled tokens.

    All sampled tokens of a rollout are one sequence, its turns one after the other; prompts and pictures between them
    are no steps. The return comes with the last one; the cost of `kl` in the reward is taken off at each. `after`:
    values after each record's last token; with `bootstrap` the last of these follows a rollout that the limit of steps
    cut. A turn that the loss cannot see is no part of the sequence.
    """
    gains: list[list[float]] = [[] for _ in records]
    targets: list[list[float]] = [[] for _ in records]
    for places in _rollouts(records):
        said = [value for place in places for value in values[place]]
        rewards = [-cost for place in places for cost in costs_of(records[place], kl)]
        rewards[-1] += records[places[0]].played.reward
        limited = config.bootstrap and after is not None and records[places[0]].played.limited
        gained, wanted = decoupled_gae(
            rewards,
            said,
            gamma=1.0,
            critic=config.critic_lambda,
            policy=config.policy_lambda,
            alpha=config.alpha,
            last=after[places[-1]] if limited and after is not None else 0.0,
        )
        at = 0
        for place in places:
            end = at + len(values[place])
            gains[place], targets[place] = gained[at:end], wanted[at:end]
            at = end
    return gains, targets


def _rollouts(rows: Sequence[LossRow]) -> Iterator[list[int]]:
    """The places of each rollout's rows, in the order of its turns."""
    order = sorted(range(len(rows)), key=lambda place: rows[place].at)
    for _, places in itertools.groupby(order, key=lambda place: rows[place].at[:2]):
        yield list(places)


def whitened(lines: Sequence[Sequence[float]]) -> list[list[float]]:
    """Less the mean of all tokens, divided by their standard deviation."""
    flat = torch.tensor(list(itertools.chain.from_iterable(lines)), dtype=torch.float64)
    mean, apart = float(flat.mean()), float(flat.std(unbiased=False))
    return [[(value - mean) / (apart + 1e-8) for value in line] for line in lines]


def _explained(values: Sequence[float], targets: Sequence[float]) -> float:
    """The share of the targets' variance that the values explain: 1 is all of it, 0 nothing; 0 where there is none."""
    wanted, said = torch.tensor(targets, dtype=torch.float64), torch.tensor(values, dtype=torch.float64)
    whole = float(wanted.var(unbiased=False))
    return 1 - float((wanted - said).var(unbiased=False)) / whole if whole > 1e-12 else 0.0
