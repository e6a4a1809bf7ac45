"""Turns in one row: every sampled token stands in it once, where the model sampled it, and nothing else is learnt."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image

from tests.support.cases import every_case
from training.rl.learning.loss_rows import LossRow
from training.rl.learning.trajectory_rows import by_turn, join_turns, rows_per_rollout, split_warning
from training.rl.rollouts.policy import SampledTurn

SCREEN = Image.new("RGB", (8, 8))


def chat(rollout: int, turns: int, draw: random.Random, group: int = 0) -> list[LossRow]:
    """Turns whose prompts continue each other; token 7 stands for a picture, and 9 ends what is shown."""
    asked, found = [1, 7, 9], []
    for number in range(turns):
        said = [draw.randrange(100, 999) for _ in range(draw.randint(1, 4))]
        turn = SampledTurn(
            tuple(asked), (SCREEN,) * (number + 1), tuple(said), tuple(draw.uniform(-3, 0) for _ in said)
        )
        of = (draw.uniform(-1, 1),) * len(said)
        found.append(LossRow(turn, (group, rollout, number), f"{rollout}.{number}", coefficients=of))
        asked += [*said, 5, 7, 9]
    return found


def test_by_hand() -> None:
    """Two turns: the prompt 1 7 9 is answered with 20 21, then 5 7 9 is shown and answered with 30."""
    first = SampledTurn((1, 7, 9), (SCREEN,), (20, 21), (-0.5, -1.0))
    second = SampledTurn((1, 7, 9, 20, 21, 5, 7, 9), (SCREEN, SCREEN), (30,), (-2.0,), cut=True)
    rows = [
        LossRow(first, (0, 3, 0), "a", old=(-0.6, -1.1), coefficients=(0.5, 0.25)),
        LossRow(second, (0, 3, 1), "b", old=(-2.1,), coefficients=(-0.25,)),
    ]
    (made,) = join_turns(rows)
    assert made.turns == ((0, 0, 2), (1, 5, 6))
    assert made.row.turn.prompt_ids == (1, 7, 9)
    assert made.row.turn.ids == (20, 21, 5, 7, 9, 30)
    assert made.row.turn.images == (SCREEN, SCREEN)
    assert made.row.turn.cut
    assert made.row.learnt == (True, True, False, False, False, True)
    assert made.row.coefficients == (0.5, 0.25, 0.0, 0.0, 0.0, -0.25)
    assert made.row.old == (-0.6, -1.1, 0.0, 0.0, 0.0, -2.1)
    assert made.row.bonus == ()
    assert made.row.turn.logprobs == (-0.5, -1.0, 0.0, 0.0, 0.0, -2.0)
    assert made.row.tokens == 3
    seen: list[LossRow] = []

    def measure(whole: Sequence[LossRow]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        seen.extend(whole)
        return [torch.arange(6.0)], [torch.arange(10.0, 16.0)]

    likely, entropies = by_turn(rows, measure)
    assert seen == [made.row]
    assert [each.tolist() for each in likely] == [[0.0, 1.0], [5.0]]
    assert [each.tolist() for each in entropies] == [[10.0, 11.0], [15.0]]


@every_case("seed", range(200))
def test_every_sampled_token_stands_in_one_row_once(seed: int) -> None:
    """Some turns are left out, and some answers' texts were tokenised otherwise than sampled."""
    draw = random.Random(seed)
    rows = [row for rollout in range(4) for row in chat(rollout, draw.randint(1, 6), draw)]
    broken = {row.at for row in rows if row.at[2] and draw.random() < 0.2}
    rows = [
        replace(row, turn=replace(row.turn, prompt_ids=(*row.turn.prompt_ids[:2], 8, *row.turn.prompt_ids[3:])))
        if row.at in broken
        else row
        for row in rows
    ]
    rows = [row for row in rows if draw.random() < 0.8]
    made = join_turns(rows)
    assert sorted(index for each in made for index, _, _ in each.turns) == list(range(len(rows)))
    for each in made:
        ids, learnt = each.row.turn.ids, each.row.learnt
        assert learnt is not None
        assert len(ids) == len(learnt) == len(each.row.coefficients) == len(each.row.turn.logprobs)
        assert each.row.tokens == sum(len(rows[index].turn.ids) for index, _, _ in each.turns)
        assert {rows[index].at[:2] for index, _, _ in each.turns} == {each.row.at[:2]}
        for index, start, end in each.turns:
            turn = rows[index].turn
            # what stands before a turn's tokens is what the model was asked
            assert (*each.row.turn.prompt_ids, *ids[:start]) == turn.prompt_ids
            assert ids[start:end] == turn.ids
            assert each.row.turn.images[: len(turn.images)] == turn.images
            assert all(learnt[start:end])
            assert each.row.coefficients[start:end] == rows[index].coefficients
    # as few as can be: a row ends only where the next turn does not continue it
    for before, after in itertools.pairwise(made):
        last, first = rows[before.turns[-1][0]], rows[after.turns[0][0]]
        ids = (*last.turn.prompt_ids, *last.turn.ids)
        assert last.at[:2] != first.at[:2] or first.turn.prompt_ids[: len(ids)] != ids


def test_without_a_turn_in_the_middle_its_answer_is_read_and_not_learnt() -> None:
    rows = chat(0, 3, random.Random(1))
    (made,) = join_turns([rows[0], rows[2]])
    assert made.row.turn.ids == (*rows[2].turn.prompt_ids, *rows[2].turn.ids)[3:]
    assert made.row.tokens == len(rows[0].turn.ids) + len(rows[2].turn.ids)


def other_token(turn: SampledTurn) -> SampledTurn:
    return replace(turn, prompt_ids=(*turn.prompt_ids[:3], 98, *turn.prompt_ids[4:]))


def smaller_picture(turn: SampledTurn) -> SampledTurn:
    return replace(turn, images=(Image.new("RGB", (8, 4)), *turn.images[1:]))


def fewer_pictures(turn: SampledTurn) -> SampledTurn:
    return replace(turn, images=turn.images[2:])


@pytest.mark.parametrize("change", [other_token, smaller_picture, fewer_pictures])
def test_what_does_not_continue_the_turn_before_begins_a_new_row(change: Any) -> None:
    rows = chat(0, 4, random.Random(3))
    rows[2] = replace(rows[2], turn=change(rows[2].turn))
    made = join_turns(rows)
    assert [[index for index, _, _ in each.turns] for each in made] in ([[0, 1], [2], [3]], [[0, 1], [2, 3]])
    assert rows_per_rollout([each.row for each in made]) == len(made)


def test_two_rollouts_of_equal_prompts_stand_apart() -> None:
    rows = [*chat(0, 1, random.Random(1)), *chat(1, 1, random.Random(1)), *chat(0, 1, random.Random(1), group=1)]
    made = join_turns(rows)
    assert [each.row.at for each in made] == [(0, 0, 0), (0, 1, 0), (1, 0, 0)]
    assert rows_per_rollout([each.row for each in made]) == 1.0
    assert join_turns([]) == []


def test_many_rows_are_told() -> None:
    assert split_warning(1.0) == split_warning(1.2) == ""
    assert "2.10 rows for each rollout" in split_warning(2.1)
    assert rows_per_rollout([]) == 1.0  # a generation in which nothing is left to learn from
