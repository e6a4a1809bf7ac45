"""What TRL computes of the rows of a generation: the loss and its gradient, in passes, and log probabilities.

Written for TRL 1.16. Its seam: `_compute_loss` takes advantages of the shape (B, T), and
`_get_per_token_logps_and_entropies` is the forward of that loss. A generation has any number of turns, so a step here
is a loop over passes of `batch_size` rows, and the loss of each pass is weighed so that several passes have the
gradient of one. TRL divides a generation into equal parts instead, which its rows must fill.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from training.common.sharding import is_sharded, reshard
from training.rl.config import RlConfig
from training.rl.joined import by_turn
from training.rl.ranks import TrainingRanks, passes
from training.rl.rows import LossRow, Pictures, parts, tensors
from training.rl.sdpo import divergence, importance_weight, sdpo_loss, trust_region
from training.rl.teaching import Teaching

WHOLE = ("dapo", "cispo")  # losses that divide by the tokens of the step themselves


@dataclass
class Prepared:
    """Rows of one generation with the log probabilities that the loss's forward gave them before the first step."""

    rows: list[LossRow]
    before: list[Tensor]


class RowTrainer(GRPOTrainer):  # type: ignore[misc]
    """
    chosen    the configuration
    pictures  makes the inputs of a row's pictures
    teaching  SDPO's
    ranks     the processes of the training, where it has several
    sampled   the rows of the generation, one of each turn, as `log_probabilities` was asked for them; by their places
    """

    chosen: RlConfig
    pictures: Pictures
    teaching: Teaching | None
    ranks: TrainingRanks | None
    sampled: dict[tuple[int, int, int], LossRow]

    def gradient(self, model: Any, prepared: Prepared, step: int) -> Tensor:
        """Adds the gradient of an optimiser step's rows with advantages; gives their loss."""
        loss = torch.zeros((), device=self.accelerator.device)
        chunks = self._divided(self._rows_with_advantages(prepared, step))
        for at, each in enumerate(self.passes(prepared, step)):
            share = each.pop("share")
            # whole models exchange their gradients once, after the last pass
            waits = self.ranks is not None and at < len(chunks) - 1 and not is_sharded(model)
            with self.accelerator.no_sync(model) if waits else nullcontext():
                with self.compute_loss_context_manager():
                    part = self.compute_loss(model, each) * share
                self.accelerator.backward(part)
            loss += part.detach()
        return loss

    def taught_gradient(self, prepared: Prepared, step: int) -> tuple[Tensor, list[tuple[float, float, int]]]:
        """Adds the gradient of an optimiser step's rows with lessons; gives their loss, and the sums of each pass that
        `distillation` tells."""
        loss = torch.zeros((), device=self.accelerator.device)
        found: list[tuple[float, float, int]] = []
        for rows, before, tokens in self.taught(prepared, step):
            with self.compute_loss_context_manager():
                part, sums = self.distillation(rows, before, tokens)
            self.accelerator.backward(part)
            loss += part.detach()
            found.append(sums)
        return loss, found

    def step_rows(self, prepared: Prepared, step: int) -> tuple[list[int], int]:
        """(the rows of an optimiser step, in their order; how many sampled tokens they have)."""
        chosen = self.chosen
        numbers = list(range(len(prepared.rows)))
        random.Random(f"{chosen.seed} rows {step // chosen.steps_per_generation}").shuffle(numbers)
        at, of = step % chosen.steps_per_generation, chosen.steps_per_generation
        mine = numbers[at * len(numbers) // of : (at + 1) * len(numbers) // of]
        return mine, sum(prepared.rows[number].tokens for number in mine)

    def taught(self, prepared: Prepared, step: int) -> Iterator[tuple[list[LossRow], list[Tensor], int]]:
        """The rows of an optimiser step that learn from the teacher, in passes, with their log probabilities before
        the first step and the divisor of the step's mean: the sampled tokens of all its rows."""
        mine, tokens = self.step_rows(prepared, step)
        mine = [number for number in mine if prepared.rows[number].lesson is not None]
        for some in parts(mine, self.chosen.batch_size):
            yield [prepared.rows[number] for number in some], [prepared.before[number] for number in some], tokens

    def distillation(
        self, rows: Sequence[LossRow], before: Sequence[Tensor], tokens: int
    ) -> tuple[Tensor, tuple[float, float, int]]:
        """SDPO's part of a step's loss, of some rows with lessons; and for `mean_figures` the sums over their sampled
        tokens of the divergence and of the student's entropy, nats, with the number of these tokens."""
        chosen = self.chosen.sdpo
        assert chosen is not None
        assert self.teaching is not None
        assert self.teaching.teacher is not None
        lessons = [replace(row, turn=row.lesson) for row in rows if row.lesson is not None]
        with self.teaching.teacher.teaching():  # first: it changes the weights, which a backward pass must not see
            knowing = self.logits(lessons)
        if chosen.mix is not None:
            with torch.no_grad():
                knowing = trust_region(knowing, self.logits(lessons), chosen.mix)
        made = self.inputs(rows)
        mine = self.logits(rows, made)
        ids, mask = made["completion_ids"], made["completion_mask"]
        likely = mine.log_softmax(-1)
        now = likely.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        then = torch.zeros_like(now)
        for number, line in enumerate(before):
            then[number, : len(line)] = line
        apart = divergence(mine, knowing, chosen.alpha, chosen.top)
        weights = importance_weight(now, then, chosen.most)
        unsure = -(likely.exp() * likely).sum(-1)
        told = (float((apart.detach() * mask).sum()), float((unsure.detach() * mask).sum()), int(mask.sum()))
        return sdpo_loss(apart, weights, mask, torch.ones(len(rows), device=mask.device), float(tokens)), told

    def logits(self, rows: Sequence[LossRow], made: dict[str, Any] | None = None) -> Tensor:
        """(B, T, V) in float32, by which each sampled token was drawn: at the temperature of the sampling."""
        made = self.inputs(rows) if made is None else made
        long = made["completion_ids"].size(1)
        seen = {name: made[name] for name in ("pixel_values", "image_grid_thw", "mm_token_type_ids") if name in made}
        with self.accelerator.autocast():  # as TRL computes its own
            out = self.model(
                input_ids=torch.cat([made["prompt_ids"], made["completion_ids"]], dim=1),
                attention_mask=torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1),
                logits_to_keep=long + 1,
                use_cache=False,
                **seen,
            )
        found: Tensor = out.logits[:, -long - 1 : -1].float() / self.chosen.temperature
        return found

    def passes(self, prepared: Prepared, step: int) -> Iterator[dict[str, Any]]:
        """The inputs of the loss of advantages in each pass of an optimiser step, with the `share` that the pass's loss
        has."""
        _, tokens = self.step_rows(prepared, step)
        mine = self._rows_with_advantages(prepared, step)
        for some, counting in self._divided(mine):
            rows = [prepared.rows[number] for number in some]
            made = self.inputs(rows)
            old = torch.zeros_like(made["advantages"])
            for row, number in enumerate(some):
                old[row, : len(prepared.before[number])] = prepared.before[number]
            made["old_per_token_logps"] = old
            made["num_items_in_batch"] = torch.tensor(float(tokens), device=old.device)
            # several processes: gradients are averaged over them, and TRL multiplies a mean over tokens by their number
            of_rows = len(rows) / len(mine) * self.args.world_size
            made["share"] = 1.0 if self.loss_type in WHOLE else of_rows
            made["completion_mask"][counting:] = 0  # not in the loss
            yield made

    def _rows_with_advantages(self, prepared: Prepared, step: int) -> list[int]:
        return [number for number in self.step_rows(prepared, step)[0] if prepared.rows[number].lesson is None]

    def _divided(self, numbers: Sequence[int]) -> list[tuple[Sequence[int], int]]:
        """The passes of this process over some rows, and how many rows of each count (`training.rl.ranks.passes`)."""
        if self.ranks is None:
            return [(some, len(some)) for some in parts(numbers, self.chosen.batch_size)]
        return passes(numbers, self.ranks.rank, self.ranks.count, self.chosen.batch_size)

    def inputs(self, rows: Sequence[LossRow]) -> dict[str, Any]:
        """The tensors of some rows (`training.rl.rows.tensors`)."""
        return tensors(rows, self.pictures, self._tokenizer.pad_token_id, self.accelerator.device)

    def log_probabilities(self, rows: Sequence[LossRow]) -> tuple[list[Tensor], list[Tensor]]:
        """By the forward of the loss, in nats: of each row's sampled tokens (T,), and the entropy at each (T,)."""
        if self.ranks is None:
            return self._measured(rows)
        new = [row for row in rows if row.at not in self.sampled]
        found: tuple[list[Tensor], list[Tensor]] = self.ranks.run("measure", new, [row.at for row in rows])
        return found

    def _measured(self, rows: Sequence[LossRow]) -> tuple[list[Tensor], list[Tensor]]:
        if self.chosen.rows == "trajectory":
            return by_turn(rows, self._log_probabilities)
        return self._log_probabilities(rows)

    def _log_probabilities(self, rows: Sequence[LossRow]) -> tuple[list[Tensor], list[Tensor]]:
        """(T,) for every token after each row's prompt, sampled or shown."""
        self.model.train()  # as the loss has it; there is no dropout
        if self.ranks is None:
            return self._by_passes(list(parts(rows, self.chosen.batch_size)))
        found = self.ranks.measure(rows, self.chosen.batch_size, self._by_passes)
        reshard(self.model)
        return found

    def _by_passes(self, chunks: Sequence[Sequence[LossRow]]) -> tuple[list[Tensor], list[Tensor]]:
        found: list[Tensor] = []
        entropies: list[Tensor] = []
        for some in chunks:
            made = self.inputs(some)
            ids = torch.cat([made["prompt_ids"], made["completion_ids"]], dim=1)
            mask = torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1)
            seen = {
                name: made.get(name) for name in ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")
            }
            with torch.no_grad(), self.compute_loss_context_manager():
                likely, unsure, _ = self._get_per_token_logps_and_entropies(
                    self.model, ids, mask, made["completion_ids"].size(1), compute_entropy=True, **seen
                )
            for row, line, each in zip(some, likely, unsure, strict=True):
                found.append(line[: len(row.turn.ids)].float())
                entropies.append(each[: len(row.turn.ids)].float())
        return found, entropies
