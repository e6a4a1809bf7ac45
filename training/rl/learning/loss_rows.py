"""Rows of the loss: what was sampled, made into tensors again without tokenising anything.

A row is one turn: its prompt, its pictures, its sampled tokens and the coefficient of each. Or it is several turns of a
rollout (`training.rl.learning.trajectory_rows`), with what was shown between the answers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from training.rl.rollouts.policy import SampledTurn

T = TypeVar("T")
Place = tuple[int, int, int]  # group, rollout, turn, as indices in a generation


LINES: Final = ("old", "coefficients", "bonus", "reference", "kl")  # of a row: a number for each token, or none


@dataclass(frozen=True)
class LossRow:
    """What the loss is computed from. The tuples have a number for each token of turn.ids, or none at all.

    at            (group, rollout, turn), as indices in its generation; of several turns the first
    where         the same in words
    teacher_turn  the same answer under the prompt of SDPO's teacher; None: it learns from its advantage
    old           log probability before the first step, nats: the ratio of the loss is to it
    coefficients  what each token's term of the loss is multiplied by (`training.rl.learning.coefficients`)
    bonus         what each token's entropy is multiplied by, before the coefficient of the entropy bonus
    reference     log probability by the reference, nats
    kl            what each token's divergence from the reference is multiplied by, where that is in the loss
    learnt        whether each token was sampled and is in the loss; None: all of them
    """

    turn: SampledTurn
    at: Place
    where: str
    teacher_turn: SampledTurn | None = None
    old: tuple[float, ...] = ()
    coefficients: tuple[float, ...] = ()
    bonus: tuple[float, ...] = ()
    reference: tuple[float, ...] = ()
    kl: tuple[float, ...] = ()
    learnt: tuple[bool, ...] | None = None

    @property
    def tokens(self) -> int:
        """How many of its tokens are in the loss."""
        return len(self.turn.ids) if self.learnt is None else sum(self.learnt)


class Pictures:
    """Makes a model's inputs of a row's pictures, and checks them against its tokens.

    processor    the model's; token: the id that stands for a patch of an image
    """

    def __init__(self, processor: Any, token: int) -> None:
        self.images = processor.image_processor
        self.token = token
        self.merge = int(getattr(self.images, "merge_size", 1)) ** 2

    def fault(self, row: LossRow) -> str | None:
        """Why the loss cannot see what the rollout saw of this row; None: it can.

        transformers compares only sums over a batch, and TRL drops every picture of a batch that does not fit.
        """
        places = sum(token == self.token for token in row.turn.prompt_ids)
        if stray := sum(token == self.token for token in row.turn.ids):
            return f"{row.where}: {stray} image tokens were sampled"
        try:
            patches = sum(math.prod(grid) // self.merge for grid in self.of(row)[1].tolist()) if row.turn.images else 0
        except (OSError, SyntaxError, ValueError) as error:  # what PIL and the processor raise for a broken picture
            return f"{row.where}: a picture cannot be read: {error}"
        if places != patches:
            return (
                f"{row.where}: its prompt has {places} image tokens, and its {len(row.turn.images)} pictures {patches}"
            )
        return None

    def of(self, row: LossRow) -> tuple[Tensor, Tensor]:
        """(patches, grids) of a row that has pictures."""
        made = self.images(images=list(row.turn.images), return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"]


def tensors(rows: Sequence[LossRow], pictures: Pictures, pad: int, device: Any) -> dict[str, Any]:
    """The inputs of the loss for some rows, except what is computed by the model.

    prompt_ids, prompt_mask (B, P) padded on the left; completion_ids, completion_mask (B, T) on the right, and of the
    same shape those of LINES, and learnt, True for the tokens that are in the loss; pixel_values,
    image_grid_thw, mm_token_type_ids (B, P + T), num_images.
    """
    wide = max(len(row.turn.prompt_ids) for row in rows)
    long = max(len(row.turn.ids) for row in rows)
    prompts = torch.full((len(rows), wide), pad)
    answers = torch.full((len(rows), long), pad)
    prompt_mask, answer_mask = torch.zeros_like(prompts), torch.zeros_like(answers)
    learnt = torch.zeros(len(rows), long, dtype=torch.bool)
    lines = {name: torch.zeros(len(rows), long) for name in LINES}
    for number, row in enumerate(rows):
        before, after = len(row.turn.prompt_ids), len(row.turn.ids)
        prompts[number, wide - before :] = torch.tensor(row.turn.prompt_ids)
        prompt_mask[number, wide - before :] = 1
        answers[number, :after] = torch.tensor(row.turn.ids)
        answer_mask[number, :after] = 1
        learnt[number, :after] = True if row.learnt is None else torch.tensor(row.learnt)
        for name, line in lines.items():
            if given := getattr(row, name):
                line[number, :after] = torch.tensor(given)
    made: dict[str, Any] = {
        "prompt_ids": prompts,
        "prompt_mask": prompt_mask,
        "completion_ids": answers,
        "completion_mask": answer_mask,
        "learnt": learnt,
        **lines,
    }
    if any(row.turn.images for row in rows):
        seen = [pictures.of(row) for row in rows if row.turn.images]
        made["pixel_values"] = torch.cat([patches for patches, _ in seen])
        made["image_grid_thw"] = torch.cat([grids for _, grids in seen])
        made["mm_token_type_ids"] = (torch.cat([prompts, answers], dim=1) == pictures.token).long()
    made = {name: value.to(device) for name, value in made.items()}
    if "pixel_values" in made:
        made["num_images"] = [len(row.turn.images) for row in rows]
    return made


def step_rows(rows: Sequence[T], step: int, steps: int, seed: int) -> list[T]:
    """The rows of one optimiser step of the `steps` that a generation's are divided over: a part of them in an order of
    chance, drawn anew each time that the generation is gone through."""
    order = list(rows)
    random.Random(f"{seed} rows {step // steps}").shuffle(order)
    at = step % steps
    return order[at * len(order) // steps : (at + 1) * len(order) // steps]


def parts(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The rows in passes of `size` at most."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
