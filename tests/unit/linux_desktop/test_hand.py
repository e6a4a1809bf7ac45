"""How long an oracle waits: as long as programs are at work, and no longer than what rests could still show."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from eval.accessibility.tree import Tree, TreeNode
from eval.actions import ActionType
from eval.benchmarks.linux_desktop import oracle_actions as hands
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, OracleLost, Work
from eval.desktop import Expected


def shown(*names: str, role: str = "frame", working: bool = False) -> Tree:
    nodes = [TreeNode(role=role, name=name, states=("showing", "focused"), bounds=(0, 0, 9, 9)) for name in names]
    return Tree(applications=[TreeNode(role="application", children=nodes)], screen=(100, 100), working=working)


def played(work: Work, trees: Iterable[Tree]) -> list[Expected]:
    """The actions, until the work ends; the last tree stays."""
    steps, told = iter(trees), []
    try:
        told.append(next(work))
        tree = next(steps)
        while len(told) < 10_000:
            told.append(work.send(tree))
            tree = next(steps, tree)
    except StopIteration:
        return told
    raise AssertionError("it waits for ever")


def waits(told: list[Expected]) -> int:
    return sum(each.action.type is ActionType.WAIT for each in told)


def test_programs_that_are_at_work_are_waited_for() -> None:
    hand = OracleActions(shown(working=True))
    busy = [shown(working=True)] * (hands.LOOKS + 40)
    played(hand.click("frame", "Late"), [*busy, shown("Late")])
    assert hand.seen("frame", "Late") is not None


def test_at_rest_what_is_missing_does_not_come() -> None:
    hand = OracleActions(shown())
    with pytest.raises(OracleLost, match="not to be seen: frame Late"):
        played(hand.click("frame", "Late"), [shown()] * (hands.LOOKS - 1) + [shown()])


def test_looks_at_rest_count_together_whatever_lies_between() -> None:
    hand = OracleActions(shown())
    trees = [shown(working=number % 2 == 0) for number in range(2 * hands.LOOKS - 4)]
    played(hand.click("frame", "Late"), [*trees, shown("Late")])
    assert hand.seen("frame", "Late") is not None


def test_one_that_never_rests_ends_too() -> None:
    hand = OracleActions(shown(working=True))
    with pytest.raises(OracleLost):
        played(hand.click("frame", "Late"), [shown(working=True)])


def test_pauses_grow_while_programs_are_at_work_so_that_steps_are_few() -> None:
    hand = OracleActions(shown(working=True))
    told = played(hand.click("frame", "Late"), [*[shown(working=True)] * 6, shown(), shown("Late")])
    assert [each.action.duration for each in told[:-1]] == [0.5, 1, 2, 4, 8, 8, 8, 0.5]


def test_a_dialog_that_is_at_work_gets_no_second_key() -> None:
    """A second Enter would answer what the dialog asks next."""
    hand = OracleActions(shown("Save", role="dialog"))
    field = shown("Save", role="dialog")
    field.applications.append(shown("name", role="text").applications[0])
    busy = shown("Save", role="dialog", working=True)
    told = played(hand.choose_file("/tmp/a"), [field, field, field, *[busy] * 20, shown()])
    keys = [each.action.keys for each in told if each.action.type is ActionType.KEY]
    assert keys == [("enter",)]
    assert waits(told) >= 19
