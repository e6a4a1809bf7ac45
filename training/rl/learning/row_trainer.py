"""The passes of an optimiser step: forward and backward over a generation's rows, `batch_size` at a time.

Written for TRL 1.16. Its seam is `_get_per_token_logps_and_entropies`, a forward that never holds all logits. The loss
is a sum over tokens, each with a final coefficient (`coefficients`): how it is divided into passes and over
processes changes nothing but the order of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from training.common.model.sharding import is_sharded, reshard
from training.rl.config import RlConfig
from training.rl.learning.entropy_bonus import EntropyBonus
from training.rl.learning.kl import ReferenceModel, divergence
from training.rl.learning.loss_rows import LossRow, Pictures, Place, parts, step_rows, tensors
from training.rl.learning.losses import LossSettings, clipped, token_losses
from training.rl.learning.ranks import Measured, TrainingRanks, passes
from training.rl.learning.sdpo import loss as sdpo_loss
from training.rl.learning.sdpo.stage import TeacherCallback
from training.rl.learning.trajectory_rows import by_turn
from training.rl.learning.turn_records import TurnRecord
from training.rl.rollouts.filters import SamplingFilters, entropy_of, seen_before

Seen = dict[Place, tuple[Tensor, Tensor]]  # by a row's `at`: what `log_probabilities` gives for it


class RowTrainer(GRPOTrainer):  # type: ignore[misc]
    """
    chosen    the configuration
    losses    of the tokens
    bonus     of their entropy
    pictures  makes the inputs of a row's pictures
    sdpo      its teacher
    reference of the divergence
    filters   of the sampling; None: none
    ranks     the processes of the training, where it has several
    sent      with several: the rows of the generation, one of each turn, in every process; None: it is not in the loss
    """

    chosen: RlConfig
    losses: LossSettings
    bonus: EntropyBonus
    pictures: Pictures
    sdpo: TeacherCallback | None
    reference: ReferenceModel | None
    filters: SamplingFilters | None
    ranks: TrainingRanks | None
    sent: list[LossRow | None]

    def gradient(self, model: Any, rows: Sequence[LossRow], step: int, seen: Seen | None = None) -> Tensor:
        """Adds the gradient of an optimiser step's rows with advantages; gives their loss. Figures are told. `seen`:
        None, or the rows have no `old`, which is what this forward gives, and `seen` gets it."""
        device = self.accelerator.device
        loss, told = torch.zeros((), device=device), torch.zeros(7, device=device)
        mine = [row for row in self.step_rows(rows, step) if row.teacher_turn is None]
        chunks = self._divided(mine)
        for at, (some, counting) in enumerate(chunks):
            own = [row if place < counting else _silent(row) for place, row in enumerate(some)]
            # whole models exchange their gradients once, after the last pass
            waits = self.ranks is not None and at < len(chunks) - 1 and not is_sharded(model)
            with self.accelerator.no_sync(model) if waits else nullcontext():
                with self.compute_loss_context_manager():
                    part, figures = self.loss_of(model, own, seen)
                part = part * self.args.world_size  # gradients are averaged over the processes
                self.accelerator.backward(part)
            loss += part.detach()
            told += figures
        if mine:
            told = self.accelerator.reduce(told, reduction="sum")
            self._tell_step(told.tolist())
        return loss

    def loss_of(self, model: Any, rows: Sequence[LossRow], seen: Seen | None = None) -> tuple[Tensor, Tensor]:
        """The sum of the terms of some rows' tokens; and (7,) of these tokens: their number, the sum of their entropy,
        how many are clipped below and above; of those that the entropy bonus is of, their number and the entropy; the
        sum of their divergence from the reference."""
        made = self.inputs(rows)
        now, entropies = self.likely(model, made)
        of, mask = made["coefficients"], made["learnt"]
        old = made["old"]
        if seen is not None:
            old = now.detach()
            seen.update(zip((row.at for row in rows), _lines(rows, old, entropies.detach()), strict=True))
        terms, ratio = token_losses(now, old, of, mask, self.losses)
        loss = terms.sum()
        if self.bonus.coefficient:
            of_each = torch.where(made["bonus"] > 0, made["bonus"] * entropies, 0.0)
            loss = loss - self.bonus.coefficient * of_each.sum()
        apart = torch.zeros_like(now)
        if self.chosen.kl is not None:
            lines = torch.where(mask, now, 0.0), torch.where(mask, made["reference"], 0.0)
            apart = divergence(*lines, self.chosen.kl.estimator)
            loss = loss + (made["kl"] * apart).sum()
        with torch.no_grad():
            known, kept = torch.where(mask, entropies, 0.0), mask & (made["bonus"] > 0)
            sums = [mask.sum(), known.sum(), *clipped(ratio, of, mask, self.losses), kept.sum(), (known * kept).sum()]
            sums.append(apart.sum())
            return loss, torch.stack([each.float() for each in sums])

    def _tell_step(self, told: Sequence[float]) -> None:
        """Figures of a step, from the sums over all of its passes and processes; the entropy bonus follows them."""
        tokens, entropy, low, high, kept, of_kept, apart = told
        figures = {"entropy": entropy / max(1.0, tokens)}
        if self.losses.kind == "cispo":
            figures["cispo_clip_ratio"] = high / max(1.0, tokens)
        elif self.losses.kind != "sapo":
            shares = {"low_mean": low, "high_mean": high, "region_mean": low + high}
            figures |= {f"clip_ratio/{name}": count / max(1.0, tokens) for name, count in shares.items()}
        if self.chosen.kl is not None:
            figures["kl"] = apart / max(1.0, tokens)
        if self.bonus.on:
            self.bonus.follow(of_kept / max(1.0, kept))
            figures["entropy_coef"] = self.bonus.weight
        for name, value in figures.items():
            self._metrics["train"][name].append(value)

    def sdpo_gradient(self, rows: Sequence[LossRow], step: int) -> tuple[Tensor, list[tuple[float, float, int]]]:
        """Adds the gradient of an optimiser step's rows that learn from SDPO's teacher; gives their
        loss, and the sums of each pass that `distillation` gives."""
        loss = torch.zeros((), device=self.accelerator.device)
        found: list[tuple[float, float, int]] = []
        mine = [row for row in self.step_rows(rows, step) if row.teacher_turn is not None]
        for some in parts(mine, self.chosen.batch_size):
            with self.compute_loss_context_manager():
                part, sums = self.distillation(some)
            self.accelerator.backward(part)
            loss += part.detach()
            found.append(sums)
        return loss, found

    def step_rows(self, rows: Sequence[LossRow], step: int) -> list[LossRow]:
        """The rows of an optimiser step."""
        return step_rows(rows, step, self.chosen.steps_per_generation, self.chosen.seed)

    def distillation(self, rows: Sequence[LossRow]) -> tuple[Tensor, tuple[float, float, int]]:
        """SDPO's part of a step's loss, of some rows with a teacher's turn: the sum of their tokens' divergences,
        each times its importance and its coefficient; and for `mean_figures` the sums over these tokens of the
        divergence and of the student's entropy, nats, with their number."""
        chosen = self.chosen.sdpo
        assert chosen is not None
        assert self.sdpo is not None
        assert self.sdpo.teacher is not None
        as_teacher = [replace(row, turn=row.teacher_turn) for row in rows if row.teacher_turn is not None]
        with self.sdpo.teacher.teaching():  # first: it changes the weights, which a backward pass must not see
            knowing = self.logits(as_teacher)
        if chosen.mix is not None:
            with torch.no_grad():
                knowing = sdpo_loss.trust_region(knowing, self.logits(as_teacher), chosen.mix)
        made = self.inputs(rows)
        mine = self.logits(rows, made)
        ids, mask = made["completion_ids"], made["learnt"]
        likely = mine.log_softmax(-1)
        now = likely.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        apart = sdpo_loss.divergence(mine, knowing, chosen.alpha, chosen.top)
        weights = sdpo_loss.importance_weight(now, made["old"], chosen.most)
        unsure = -(likely.exp() * likely).sum(-1)
        told = (float((apart.detach() * mask).sum()), float((unsure.detach() * mask).sum()), int(mask.sum()))
        return torch.where(mask, apart * weights * made["coefficients"], 0.0).sum(), told

    def logits(self, rows: Sequence[LossRow], made: dict[str, Any] | None = None) -> Tensor:
        """(B, T, V) in float32, by which each sampled token was drawn: at the temperature of the sampling."""
        made = self.inputs(rows) if made is None else made
        return self._logits(self.model, made) / self.chosen.temperature

    def _logits(self, model: Any, made: dict[str, Any]) -> Tensor:
        """(B, T, V) in float32, as the model gives them."""
        long = made["completion_ids"].size(1)
        seen = {name: made[name] for name in ("pixel_values", "image_grid_thw", "mm_token_type_ids") if name in made}
        with self.accelerator.autocast():  # as TRL computes its own
            out = model(
                input_ids=torch.cat([made["prompt_ids"], made["completion_ids"]], dim=1),
                attention_mask=torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1),
                logits_to_keep=long + 1,
                use_cache=False,
                **seen,
            )
        found: Tensor = out.logits[:, -long - 1 : -1].float()
        return found

    def _divided(self, rows: Sequence[LossRow]) -> list[tuple[Sequence[LossRow], int]]:
        """The passes of this process over some rows, and how many rows of each count (`ranks.passes`)."""
        if self.ranks is None:
            return [(some, len(some)) for some in parts(rows, self.chosen.batch_size)]
        return passes(rows, self.ranks.rank, self.ranks.count, self.chosen.batch_size)

    def inputs(self, rows: Sequence[LossRow]) -> dict[str, Any]:
        """The tensors of some rows (`training.rl.learning.loss_rows.tensors`)."""
        return tensors(rows, self.pictures, self._tokenizer.pad_token_id, self.accelerator.device)

    def likely(self, model: Any, made: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """(log probability, entropy), both (B, T), nats, of every token after the rows' prompts."""
        if self.filters is not None:
            return self._by_filters(model, made, self.filters)
        seen = ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")
        likely, entropies, _ = self._get_per_token_logps_and_entropies(
            model,
            torch.cat([made["prompt_ids"], made["completion_ids"]], dim=1),
            torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1),
            made["completion_ids"].size(1),
            compute_entropy=True,
            **{name: made.get(name) for name in seen},
        )
        return likely.float(), entropies.float()

    def _by_filters(self, model: Any, made: dict[str, Any], filters: SamplingFilters) -> tuple[Tensor, Tensor]:
        logits, ids = self._logits(model, made), made["completion_ids"]
        seen = None
        if filters.penalty != 1.0:
            seen = seen_before(made["prompt_ids"], made["prompt_mask"], ids, logits.size(-1))
        each = filters.log_probabilities(logits, seen, ids)
        return each.gather(-1, ids.unsqueeze(-1)).squeeze(-1), entropy_of(each)

    def log_probabilities(self, rows: Sequence[LossRow]) -> tuple[list[Tensor], list[Tensor]]:
        """By the forward of the loss, in nats: of each row's sampled tokens (T,), and the entropy at each (T,). With
        several processes the rows are records that were sent to all."""
        if self.ranks is None:
            return self._measured(rows)
        numbers = [row.number for row in rows if isinstance(row, TurnRecord)]
        found: tuple[list[Tensor], list[Tensor]] = self.ranks.run("measure", numbers)
        return found

    def by_reference(self, rows: Sequence[LossRow]) -> list[Tensor]:
        """The log probabilities of the same tokens by the reference."""
        if self.ranks is None:
            return self._by_reference(rows)
        found: list[Tensor] = self.ranks.run("refer", [row.number for row in rows if isinstance(row, TurnRecord)])
        return found

    def _by_reference(self, rows: Sequence[LossRow]) -> list[Tensor]:
        assert self.reference is not None
        with self.reference.model() as model:
            return self._measured(rows, model)[0]

    def _measured(self, rows: Sequence[LossRow], model: Any = None) -> tuple[list[Tensor], list[Tensor]]:
        return self._by_turn(rows, partial(self._log_probabilities, model=model))

    def as_seen(self, rows: Sequence[LossRow], seen: Seen) -> tuple[list[Tensor], list[Tensor]]:
        """What `log_probabilities` gives, from the forward of a gradient."""
        return self._by_turn(rows, lambda made: _columns([seen[row.at] for row in made]))

    def _by_turn(self, rows: Sequence[LossRow], measure: Callable[[Sequence[LossRow]], Measured]) -> Measured:
        return by_turn(rows, measure) if self.chosen.rows == "trajectory" else measure(rows)

    def measured(self, rows: Sequence[LossRow]) -> list[Tensor]:
        """The log probabilities of all tokens after the prompts of rows that every process has."""
        return self._log_probabilities(rows)[0]

    def _log_probabilities(self, rows: Sequence[LossRow], model: Any = None) -> tuple[list[Tensor], list[Tensor]]:
        """(T,) for every token after each row's prompt, sampled or shown. `model`: None, the one that learns."""
        self.model.train()  # as the loss has it; there is no dropout
        if self.ranks is None:
            return self._by_passes(list(parts(rows, self.chosen.batch_size)), model)
        found = self.ranks.measure(rows, self.chosen.batch_size, partial(self._by_passes, model=model))
        reshard(self.model)
        return found

    def _by_passes(self, chunks: Sequence[Sequence[LossRow]], model: Any = None) -> tuple[list[Tensor], list[Tensor]]:
        found: list[tuple[Tensor, Tensor]] = []
        for some in chunks:
            with torch.no_grad(), self.compute_loss_context_manager():
                likely, unsure = self.likely(self.model if model is None else model, self.inputs(some))
            found += _lines(some, likely, unsure)
        return _columns(found)


def _lines(rows: Sequence[LossRow], likely: Tensor, entropies: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Of each row alone, (T,) both."""
    both = zip(rows, likely.cpu(), entropies.cpu(), strict=True)
    return [(line[: len(row.turn.ids)], each[: len(row.turn.ids)]) for row, line, each in both]


def _columns(pairs: Sequence[tuple[Tensor, Tensor]]) -> Measured:
    return [line for line, _ in pairs], [each for _, each in pairs]


def _silent(row: LossRow) -> LossRow:
    """A row that is computed, and counts for nothing."""
    return replace(row, coefficients=(), bonus=(), kl=(), learnt=(False,) * len(row.turn.ids))
