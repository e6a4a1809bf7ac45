"""Whole rollouts as rows of the loss: turns whose prompts continue each other, token for token, stand in one row.

Nothing is tokenised again. The prompt of a turn holds the answer before it as its text was tokenised, and where these
tokens are not those that were sampled, or a picture is another one, a new row begins: what a row holds, the model saw
in this order. Between two answers stands what the desktop showed, which is read and is not in the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from training.rl.rows import LossRow

MANY: Final = 1.25  # rows for each rollout


@dataclass(frozen=True)
class JoinedTurns:
    """
    row    begins with the prompt of its first turn and ends with the last sampled token of its last
    turns  (index in what was joined, start, end): where the tokens of each turn are in row.turn.ids
    """

    row: LossRow
    turns: tuple[tuple[int, int, int], ...]

    def split(self, line: Tensor) -> dict[int, Tensor]:
        """The part of each turn, by its index, of a line (T,) of figures of the row's tokens."""
        return {index: line[start:end] for index, start, end in self.turns}


def joined(rows: Sequence[LossRow]) -> list[JoinedTurns]:
    """Rows of one turn each, those of a rollout in their order, in as few rows as can be. An advantage is in the
    `weights` of each token afterwards."""
    chains: list[list[int]] = []
    for index, row in enumerate(rows):
        if chains and _continues(rows[chains[-1][-1]], row):
            chains[-1].append(index)
        else:
            chains.append([index])
    return [_join(rows, chain) for chain in chains]


def _continues(before: LossRow, row: LossRow) -> bool:
    """Whether the prompt of `row` begins with the prompt and the answer of the turn before. Pictures are compared by
    number and size: the gate compares what the model makes of them."""
    ids = (*before.turn.prompt_ids, *before.turn.ids)
    old, new = before.turn.images, row.turn.images
    return (
        before.at[:2] == row.at[:2]
        and row.turn.prompt_ids[: len(ids)] == ids
        and [each.size for each in new[: len(old)]] == [each.size for each in old]
    )


def _join(rows: Sequence[LossRow], chain: Sequence[int]) -> JoinedTurns:
    first, last = rows[chain[0]], rows[chain[-1]]
    begun = len(first.turn.prompt_ids)
    ids = (*last.turn.prompt_ids, *last.turn.ids)[begun:]
    logprobs, weights, learnt = [0.0] * len(ids), [0.0] * len(ids), [False] * len(ids)
    turns = []
    for index in chain:
        row = rows[index]
        start = len(row.turn.prompt_ids) - begun
        end = start + len(row.turn.ids)
        logprobs[start:end] = row.turn.logprobs
        weights[start:end] = [row.advantage * each for each in row.weights or (1.0,) * len(row.turn.ids)]
        learnt[start:end] = [True] * len(row.turn.ids)
        turns.append((index, start, end))
    turn = replace(first.turn, images=last.turn.images, ids=ids, logprobs=tuple(logprobs), cut=last.turn.cut)
    whole = replace(first, turn=turn, advantage=1.0, weights=tuple(weights), learnt=tuple(learnt))
    return JoinedTurns(whole, tuple(turns))


def whole_rollouts(rows: Sequence[LossRow], lines: Sequence[Tensor]) -> tuple[list[LossRow], list[Tensor]]:
    """Rows of one turn each, joined; and what `lines` has for the tokens of each turn (T,), 0 between the answers."""
    made = joined(rows)
    spread = []
    for each in made:
        line = torch.zeros(len(each.row.turn.ids), device=lines[each.turns[0][0]].device)
        for index, start, end in each.turns:
            line[start:end] = lines[index]
        spread.append(line)
    return [each.row for each in made], spread


def by_turn(
    rows: Sequence[LossRow], measure: Callable[[Sequence[LossRow]], tuple[list[Tensor], list[Tensor]]]
) -> tuple[list[Tensor], list[Tensor]]:
    """What `measure` tells of rows of one turn each, (T,) for each of them, but measured where they are joined."""
    made = joined(rows)
    first: dict[int, Tensor] = {}
    second: dict[int, Tensor] = {}
    for each, one, other in zip(made, *measure([each.row for each in made]), strict=True):
        first |= each.split(one)
        second |= each.split(other)
    return [first[index] for index in range(len(rows))], [second[index] for index in range(len(rows))]


def rows_per_rollout(rows: Sequence[LossRow]) -> float:
    """Of joined rows: 1 where every rollout is in one, and where there are none."""
    return len(rows) / len({row.at[:2] for row in rows}) if rows else 1.0


def split_warning(share: float) -> str:
    """What it means that rollouts have `share` rows each; "" where nearly all are in one."""
    if not share > MANY:
        return ""
    return (
        f"rows: trajectory: {share:.2f} rows for each rollout: prompts do not hold earlier answers as they were "
        "sampled. Either their texts are tokenised otherwise, which a model that is surer of its answers does less, or "
        "the chat template changes earlier answers, for example leaves their thoughts out"
    )
