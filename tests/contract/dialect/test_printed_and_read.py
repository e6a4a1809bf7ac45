"""What a dialect writes in a frame it reads back: in fractions, in a screen's pixels, in those of a resized picture."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.dialects.base import Dialect
from eval.actions.dialects.registry import DIALECTS, make_dialect
from eval.actions.geometry import FAMILIES, Cells, smart_resize
from tests.contract.dialect.test_dialect import GRIDS, without_places
from tests.unit.eval.strategies import actions

DECIMALS: Final = 3
RESIZED: Final = smart_resize(1080, 1920, FAMILIES["ui-tars"])[::-1]
FRAMES: Final[dict[str, Cells | None]] = {
    "normalised": None,
    "absolute": Cells(1366, 768),
    "smart-resized": Cells(*RESIZED),
    "one cell": Cells(1, 1),
}
SINGLE: Final = ("dsl", "openai-preview", "place", "place-1000")  # an answer holds one action
FRAMELESS: Final = {"waa", *GRIDS}  # their coordinates are fractions, or cells of a grid of their own


def dialect_in(name: str, frame: Cells | None) -> tuple[Dialect, tuple[float, float]]:
    """(the dialect, the largest error of x and of y that its coordinates have)."""
    dialect = make_dialect(name, DECIMALS, False)
    if name in GRIDS:
        return dialect, (0.5 / 1000, 0.5 / 1000)
    if frame is None or name in FRAMELESS:
        return dialect, (0.5 * 10**-DECIMALS, 0.5 * 10**-DECIMALS)
    return dialect.in_frame(frame), (0.5 / frame.width, 0.5 / frame.height)


def is_near(read: Action, action: Action, wide: float, high: float) -> None:
    assert without_places(read) == without_places(action)
    pairs = [(read.x, action.x, wide), (read.y, action.y, high), (read.x2, action.x2, wide), (read.y2, action.y2, high)]
    pairs += [(read.width, action.width, wide), (read.height, action.height, high)]
    for (x, y), (x2, y2) in zip(read.path or (), action.path or (), strict=True):
        pairs += [(x, x2, wide), (y, y2, high)]
    sideways = action.direction in ("left", "right")
    pairs.append((read.distance, action.distance, wide if sideways else high))
    for one, other, error in pairs:
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert abs(one - other) <= error * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("name", DIALECTS)
@settings(deadline=None, max_examples=40)
@given(done=st.lists(actions(marks=False), min_size=2, max_size=5), thought=st.none() | st.just("It is there."))
def test_what_is_written_in_a_frame_is_read_back(
    name: str, frame: str, done: list[Action], thought: str | None
) -> None:
    dialect, (wide, high) = dialect_in(name, FRAMES[frame])
    written = []
    for action in done:
        try:
            text = dialect.format(action)
        except Unrepresentable:
            continue
        read = dialect.parse(text)
        is_near(read, action, wide, high)
        assert dialect.parse(dialect.format(read)) == read
        written.append(action)
    try:
        answer = dialect.format_turn(written, thought)
    except Unrepresentable:
        return  # none, several where the dialect holds one, or a move that would become a part of the next action
    turn = dialect.parse_turn(answer)
    assert (turn.thought, len(turn.actions), turn.repairs) == (thought, len(written), ())
    for read, action in zip(turn.actions, written, strict=True):
        is_near(read, action, wide, high)


@pytest.mark.parametrize("name", [name for name in DIALECTS if name not in SINGLE])
def test_an_answer_of_several_actions_is_written_and_read_back(name: str) -> None:
    done = [
        Action(ActionType.HOVER, x=0.25, y=0.5),
        Action(ActionType.TYPE, text="a\n"),
        Action(ActionType.KEY, keys=("a",)),
    ]
    dialect = make_dialect(name, DECIMALS, False)
    turn = dialect.parse_turn(dialect.format_turn(done, "All at once."))
    assert turn.thought == "All at once."
    assert list(map(without_places, turn.actions)) == list(map(without_places, done))
    with pytest.raises(ParseError, match="3 actions instead of one"):
        dialect.parse_response(dialect.format_turn(done))
    with pytest.raises(Unrepresentable):
        dialect.format_turn([Action(ActionType.DONE), *done])


@pytest.mark.parametrize("name", sorted(FRAMELESS))
def test_a_dialect_with_a_frame_of_its_own_refuses_others(name: str) -> None:
    with pytest.raises(Unrepresentable):
        make_dialect(name, DECIMALS, False).in_frame(Cells(1366, 768))
