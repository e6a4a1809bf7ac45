"""Forms on real desktops: the expert solves them, and whoever does less, more or something else does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.benchmarks.gtk_forms import environment as gtk_forms
from eval.benchmarks.gtk_forms.forms import KINDS, form
from eval.desktop import Observation, Score, Task

SEED = 1_000_000
Play = Callable[[Observation, int], Action | None]


def play(task: Task, player: Play, options: dict[str, Any] | None = None) -> tuple[Score, list[Observation]]:
    """The score of an episode and all that was seen; `player` gets the screen and its number."""

    async def episode() -> tuple[Score, list[Observation]]:
        desktop = gtk_forms.desktop(options or {})
        try:
            seen = [await desktop.reset(task, task.seed)]
            while (action := player(seen[-1], len(seen) - 1)) is not None:
                assert len(seen) < 20, "the player does not end"
                seen.append(await desktop.step(action))
            return await desktop.score(), seen
        finally:
            await desktop.close()

    return asyncio.run(episode())


def expert(seen: Observation, number: int) -> Action | None:
    assert seen.expected is not None
    assert seen.expected.action.type is not ActionType.FAIL, seen.expected.action.text
    assert number < gtk_forms.MAX_STEPS
    return None if seen.expected.action.type is ActionType.DONE else seen.expected.action


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if at % 3 == 0 else pytest.mark.nightly) for at, kind in enumerate(KINDS)]
)
def test_the_expert_solves_it_and_who_does_nothing_or_gives_up_does_not(kind: str) -> None:
    for task in gtk_forms.tasks(3, SEED, {"kinds": [kind]}):
        score, seen = play(task, expert)
        assert score.success, score.detail
        assert score.value == 1.0
        assert 2 <= len(seen) <= 6
        assert seen[0].image is not None
        assert seen[0].image.size == seen[0].screen == (128, 96)
        assert all(before.image.tobytes() != after.image.tobytes() for before, after in pairwise(seen))
    assert play(task, lambda *_: None)[0].value == 0.0
    given_up = play(task, lambda seen, number: (Action(ActionType.FAIL), None)[number])
    assert given_up[0].value == 0.0


def press(seen: Observation, role: str, name: str) -> Action:
    assert seen.tree is not None
    (node,) = [node for node in seen.tree.nodes() if (node.role, node.name) == (role, name)]
    assert node.bounds is not None
    left, top, wide, high = node.bounds
    return Action(ActionType.CLICK, x=(left + wide / 2) / 128, y=(top + high / 2) / 96)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "role"),
    [("press", "push button"), ("tick", "check box"), ("switch", "toggle button"), ("select", "list item")],
)
def test_one_thing_too_many_is_not_solved(kind: str, role: str) -> None:
    (task,) = gtk_forms.tasks(1, SEED, {"kinds": [kind]})
    goal = form(kind, "test", SEED).goal
    asked = goal.get("rows")
    names = [name for name, value in goal.items() if not value] if asked is None else []
    more: list[Action] = []

    def player(seen: Observation, number: int) -> Action | None:
        if more or (action := expert(seen, number)) is not None:
            return None if more else action
        assert seen.tree is not None
        shown = [node.name for node in seen.tree.nodes() if node.role == role and node.name != asked]
        more.append(press(seen, role, next(name for name in shown if name in names or asked)))
        return more[0]

    score, _ = play(task, player)
    assert more
    assert not score.success
    assert score.detail is not None
    assert score.detail["wrong"]


def test_the_expert_takes_back_what_is_wrong() -> None:
    (task,) = gtk_forms.tasks(1, SEED, {"kinds": ["tick"]})
    wrong = next(name for name, value in form("tick", "test", SEED).goal.items() if not value)
    score, seen = play(task, lambda seen, number: expert(seen, number) if number else press(seen, "check box", wrong))
    assert score.success
    assert seen[1].expected is not None


def test_whoever_closes_the_form_is_judged_by_what_it_left() -> None:
    """The state's file outlives the program."""
    (task,) = gtk_forms.tasks(1, SEED, {"kinds": ["press"]})
    close = Action(ActionType.HOTKEY, keys=("alt", "f4"))
    score, _ = play(task, lambda seen, number: (expert(seen, 0), close)[number] if number < 2 else None)
    assert score.success
    assert not play(task, lambda seen, number: None if number else close)[0].success
