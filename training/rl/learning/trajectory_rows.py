"""Whole rollouts as rows of the loss: turns whose prompts continue each other, token for token, stand in one row.

Nothing is tokenised again. The prompt of a turn holds the answer before it as its text was tokenised, and where these
tokens are not those that were sampled, or a picture is another one, a new row begins: what a row holds, the model saw
in this order. Between two answers stands what the desktop showed, which is read and is not in the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from torch import Tensor

from training.rl.learning.loss_rows import LossRow

MANY: Final = 1.25  # rows for each rollout


@dataclass(frozen=True)
class TrajectoryRow:
    """
    row    begins with the prompt of its first turn and ends with the last sampled token of its last
    turns  (index in what was joined, start, end): where the tokens of each turn are in row.turn.ids
    """

    row: LossRow
    turns: tuple[tuple[int, int, int], ...]


def join_turns(rows: Sequence[LossRow]) -> list[TrajectoryRow]:
    """Rows of one turn each, those of a rollout in their order, in as few rows as can be."""
    return [_join(rows, chain) for chain in chains(rows)]


def chains(rows: Sequence[LossRow]) -> list[list[int]]:
    """The rows that stand in one row together, as indices."""
    found: list[list[int]] = []
    for index, row in enumerate(rows):
        if found and _continues(rows[found[-1][-1]], row):
            found[-1].append(index)
        else:
            found.append([index])
    return found


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


def _join(rows: Sequence[LossRow], chain: Sequence[int]) -> TrajectoryRow:
    first, last = rows[chain[0]], rows[chain[-1]]
    begun = len(first.turn.prompt_ids)
    ids = (*last.turn.prompt_ids, *last.turn.ids)[begun:]
    turns = []
    for index in chain:
        start = len(rows[index].turn.prompt_ids) - begun
        turns.append((index, start, start + len(rows[index].turn.ids)))

    def spread(of: Callable[[LossRow], tuple[float, ...]]) -> tuple[float, ...]:
        """What each turn has for its tokens, 0 between the answers; nothing where the turns have nothing."""
        line = [0.0] * len(ids)
        for index, start, end in turns:
            line[start:end] = of(rows[index]) or (0.0,) * (end - start)
        return tuple(line) if any(of(rows[index]) for index in chain) else ()

    sampled = [False] * len(ids)
    for _, start, end in turns:
        sampled[start:end] = [True] * (end - start)
    logprobs = spread(lambda row: row.turn.logprobs)
    turn = replace(first.turn, images=last.turn.images, ids=ids, logprobs=logprobs, cut=last.turn.cut)
    whole = LossRow(
        turn,
        first.at,
        first.where,
        old=spread(lambda row: row.old),
        coefficients=spread(lambda row: row.coefficients),
        bonus=spread(lambda row: row.bonus),
        reference=spread(lambda row: row.reference),
        kl=spread(lambda row: row.kl),
        learnt=tuple(sampled),
    )
    return TrajectoryRow(whole, tuple(turns))


def by_turn(
    rows: Sequence[LossRow], measure: Callable[[Sequence[LossRow]], tuple[list[Tensor], list[Tensor]]]
) -> tuple[list[Tensor], list[Tensor]]:
    """What `measure` tells of rows of one turn each, (T,) for each of them, but measured where they are joined."""
    made = join_turns(rows)
    first, second = measure([each.row for each in made])
    places = [(row, start, end) for row, each in enumerate(made) for _, start, end in each.turns]  # in their order
    return [first[row][start:end] for row, start, end in places], [second[row][start:end] for row, start, end in places]


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
