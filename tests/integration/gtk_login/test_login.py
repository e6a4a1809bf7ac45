"""The login form on a real desktop: what GTK shows is where the layout says, and who is logged in is what counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.benchmarks.gtk_login import environment as gtk_login
from eval.config import ConfigError
from eval.desktop import Observation, Score, Task
from eval.environments.login import credentials, layout

SEED = 1_000_000
Play = Callable[[Observation, int], Action | None]


def play(task: Task, player: Play, options: Mapping[str, Any] | None = None) -> tuple[Score, list[Observation]]:
    """The score of an episode and all that was seen; `player` gets the screen and its number."""

    async def episode() -> tuple[Score, list[Observation]]:
        desktop = gtk_login.desktop(options or {})
        try:
            seen = [await desktop.reset(task, task.seed)]
            while (action := player(seen[-1], len(seen) - 1)) is not None and not seen[-1].done:
                assert len(seen) < 50, "the player does not end"
                seen.append(await desktop.step(action))
            return await desktop.score(), seen
        finally:
            await desktop.close()

    return asyncio.run(episode())


def expert(seen: Observation, number: int) -> Action | None:
    assert seen.expected is not None
    return None if seen.expected.action.type is ActionType.DONE else seen.expected.action


def middle(rect: tuple[int, int, int, int]) -> Action:
    left, top, right, bottom = rect
    return Action(ActionType.CLICK, x=(left + right) / 2 / 96, y=(top + bottom) / 2 / 96)


def typed(text: str) -> Action:
    return Action(ActionType.TYPE, text=text)


def key(name: str) -> Action:
    return Action(ActionType.KEY, keys=(name,))


def script(*actions: Action) -> Play:
    return lambda seen, number: actions[number] if number < len(actions) else None


def task(seed: int = SEED, **options: Any) -> Task:
    (drawn,) = gtk_login.tasks(1, seed, options)
    return drawn


def test_the_widgets_lie_where_the_layout_has_them_and_the_expert_logs_in() -> None:
    score, seen = play(task(), expert, {"tree": True})
    assert score.success
    assert len(seen) == 6, "two presses and two words, and Login"
    form, tree = layout(SEED, "test"), seen[0].tree
    assert seen[0].image.size == seen[0].screen == (96, 96)
    assert tree is not None
    shown = {(node.role, node.name): node.bounds for node in tree.nodes() if "showing" in node.states}
    roles = {"user": "text", "find": "text", "pass": "password text", "login": "push button", "cancel": "push button"}
    for name, (left, top, right, bottom) in {**form.fields, **form.buttons}.items():
        assert shown[roles[name], name.capitalize()] == (left, top, right - left, bottom - top)
    assert seen[0].marks.keys() == set(range(1, len(form.fields) + 3))


def test_enter_sends_tab_goes_on_and_a_press_selects_what_is_replaced() -> None:
    user, password = credentials(SEED, "test")
    fields = layout(SEED, "test").fields
    assert list(fields)[:2] == ["user", "pass"], "the seed's own order, which Tab follows"
    press = middle(fields["user"])
    wrong = script(press, typed("zzz"), press, typed(user), key("tab"), typed(password), key("enter"))
    score, seen = play(task(), wrong)
    assert score.success, score.detail
    assert seen[-1].expected is not None
    assert seen[-1].expected.action.type is ActionType.DONE


def test_wrong_credentials_empty_the_form_and_cancel_ends_the_episode() -> None:
    form = layout(SEED, "test")
    login, cancel = middle(form.buttons["login"]), middle(form.buttons["cancel"])
    words = (middle(form.fields["user"]), typed("nobody"), middle(form.fields["pass"]), typed("nothing"))
    score, seen = play(task(), script(*words, login, cancel, cancel))
    assert not score.success
    assert score.detail == {"screen": "cancelled", "given_up": False}
    assert [each.done for each in seen] == [False] * 6 + [True]
    assert seen[5].expected is not None
    assert seen[0].expected is not None
    assert seen[5].expected.action == seen[0].expected.action, "empty, and without the keyboard, as in the beginning"


def test_who_gives_up_or_logs_out_again_is_not_logged_in() -> None:
    def gives_up(seen: Observation, number: int) -> Action | None:
        return expert(seen, number) if number < 5 else Action(ActionType.FAIL) if number == 5 else None

    assert not play(task(), gives_up)[0].success

    def logs_out(seen: Observation, number: int) -> Action | None:
        return expert(seen, number) if number < 5 else middle((24, 60, 72, 74)) if number == 5 else None

    score, _ = play(task(), logs_out)
    assert score.detail == {"screen": "form", "given_up": False}


def test_the_expert_goes_on_from_what_meddles() -> None:
    options = {"split": "train", "disturb": 0.6}
    for seed in (4, 9):  # forms that start empty, and with which much is meddled
        score, seen = play(task(seed, **options), expert, options)
        assert score.success, score.detail
        assert len(seen) > 6, "a quiet form takes five actions"


@pytest.mark.parametrize("disturb", [-0.1, 1.0])
def test_a_chance_that_is_none_is_refused(disturb: float) -> None:
    with pytest.raises(ConfigError, match=r"options\.disturb must be from 0 to below 1"):
        gtk_login.tasks(1, SEED, {"disturb": disturb})
