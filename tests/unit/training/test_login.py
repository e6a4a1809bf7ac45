"""The login form: its state machine, its pixels, its splits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from PIL import ImageChops

from eval.actions import Action, ActionType
from eval.actions.geometry import Screen, inside
from eval.config import ConfigError
from eval.desktop import Observation, Score
from eval.environments import login
from eval.environments.login import SIZE, LoginForm, credentials, layout, normalised, pairs
from eval.environments.splits import SPLIT_SEED
from tests.support.cases import every_case

SEEDS = range(SPLIT_SEED, SPLIT_SEED + 40)


def form(seed: int = SPLIT_SEED) -> LoginForm:
    return LoginForm(layout(seed, "test"), *credentials(seed, "test"))


def press(it: LoginForm, name: str) -> None:
    left, top, right, bottom = {**it.layout.fields, **it.layout.buttons}[name]
    it.click((left + right) // 2, (top + bottom) // 2)


def fill(it: LoginForm, user: str, password: str) -> None:
    for name, text in (("user", user), ("pass", password)):
        press(it, name)
        it.type(text)


def play(seed: int, actions: Sequence[Action] | None, **options: Any) -> tuple[list[Observation], Score]:
    """The frames and the score of an episode; None: the expert's own actions."""

    async def run() -> tuple[list[Observation], Score]:
        (task,) = login.tasks(1, seed, options)
        desktop = login.desktop(options)
        seen = [await desktop.reset(task, task.seed)]
        for number in range(task.max_steps or 0):
            expert = seen[-1].expected
            assert expert is not None
            action = expert.action if actions is None else actions[number]
            seen.append(await desktop.step(action))
            if action.type in (ActionType.DONE, ActionType.FAIL) or seen[-1].done:
                break
        return seen, await desktop.score()

    return asyncio.run(run())


@every_case("seed", SEEDS)
def test_the_expert_logs_in_with_six_actions(seed: int) -> None:
    seen, score = play(seed, None)
    assert score.success
    assert len(seen) == 7


@every_case("seed", range(40))
def test_the_expert_recovers_from_whatever_meddles(seed: int) -> None:
    _, score = play(seed, None, split="train", disturb=0.4)
    assert score.success


def test_the_same_seed_gives_the_same_pixels_and_another_one_others() -> None:
    first, again, other = (play(seed, None, split="train", disturb=0.3)[0] for seed in (3, 3, 4))
    assert [o.image.tobytes() for o in first] == [o.image.tobytes() for o in again]
    assert first[0].image.tobytes() != other[0].image.tobytes()


@every_case("seed", SEEDS)
def test_a_pixel_presses_an_element_exactly_when_it_lies_in_its_box(seed: int) -> None:
    screen = Screen(SIZE, SIZE)
    for name, rect in form(seed).layout.fields.items():
        for x in range(rect[0] - 2, min(rect[2] + 2, SIZE)):
            y = rect[1]
            it = form(seed)
            it.click(x, y)
            assert inside(screen.to_norm(x, y), normalised(rect)) == (it.focus == name)


def test_what_a_model_must_tell_apart_is_drawn() -> None:
    it = form()
    frames = [it.draw()]
    for do in ("user", "pass"):
        press(it, do)
        frames.append(it.draw())
        it.type(it.user if do == "user" else it.password)
        frames.append(it.draw())
    it.send()
    frames.append(it.draw())
    assert len({frame.tobytes() for frame in frames}) == len(frames)
    assert all(frame.size == (SIZE, SIZE) and frame.mode == "RGB" for frame in frames)


def test_a_password_is_drawn_as_dots() -> None:
    pictures = []
    for password in ("tiger", "lemon"):
        it = form()
        press(it, "pass")
        it.type(password)
        pictures.append(it.draw())
    assert ImageChops.difference(*pictures).getbbox() is None


def test_what_the_font_cannot_draw_is_typed_all_the_same() -> None:
    """A model that knows nothing types such things; the desktop must not fail of it."""
    it = form()
    fill(it, "a\ufffd\U0001f600é", "x")
    other = form()
    fill(other, "a??é", "x")
    assert it.draw().tobytes() == other.draw().tobytes()
    assert it.text["user"] == "a\ufffd\U0001f600é"


def test_typing_without_focus_does_nothing_and_a_click_beside_takes_the_focus_away() -> None:
    it = form()
    it.type("ghost")
    assert set(it.text.values()) == {""}
    press(it, "user")
    it.click(0, SIZE - 1)
    assert it.focus is None


def test_typing_after_a_click_replaces_and_typing_on_appends() -> None:
    it = form()
    press(it, "user")
    it.type("al")
    it.type("ice")
    assert it.text["user"] == "alice"
    press(it, "user")
    it.type("bob")
    assert it.text["user"] == "bob"


def test_keys() -> None:
    it = form()
    first, second, *_ = it.layout.fields
    it.focus_on(first)
    it.type("ab")
    it.key("backspace")
    assert it.text[first] == "a"
    it.key("tab")
    assert it.focus == second
    it.key("f5")
    it.key("enter")
    assert it.screen == "form"
    assert it.error == "Fill in all"


def test_only_the_right_credentials_open_the_welcome_screen() -> None:
    it = form()
    fill(it, it.user, "wrong")
    press(it, "login")
    assert (it.screen, it.error) == ("form", "Wrong login")
    fill(it, it.user, it.password)
    press(it, "login")
    assert it.screen == "welcome"


def test_logging_out_undoes_the_login() -> None:
    it = form()
    fill(it, it.user, it.password)
    press(it, "login")
    it.click(login.LOGOUT[0], login.LOGOUT[1])
    assert it.screen == "form"
    assert set(it.text.values()) == {""}


def test_the_state_is_judged_and_not_the_word() -> None:
    done = Action(ActionType.DONE)
    assert not play(SPLIT_SEED, [done])[1].success
    seen, _ = play(SPLIT_SEED, None)
    right = [o.expected.action for o in seen[:5] if o.expected]
    assert play(SPLIT_SEED, [*right, done])[1].success
    assert not play(SPLIT_SEED, [*right, Action(ActionType.FAIL)])[1].success
    waits = [Action(ActionType.WAIT)] * 20
    assert play(SPLIT_SEED, [*right, *waits])[1].success  # never says DONE: the state at the end counts


def test_the_decoy_ends_the_episode_unsolved() -> None:
    it = form()
    left, top, width, height = normalised(it.layout.buttons["cancel"])
    click = Action(ActionType.CLICK, x=left + width / 2, y=top + height / 2)
    seen, score = play(SPLIT_SEED, [click])
    assert seen[-1].done
    assert not score.success


def test_evaluation_has_no_pair_no_layout_and_no_seed_of_training() -> None:
    assert not set(pairs("train")) & set(pairs("test"))
    assert {user for user, _ in pairs("test")} <= {user for user, _ in pairs("train")}
    assert {password for _, password in pairs("test")} <= {password for _, password in pairs("train")}
    test = range(SPLIT_SEED, SPLIT_SEED + 200)
    assert {credentials(seed, "test") for seed in test} <= set(pairs("test"))
    learnt = {layout(seed, "train").geometry for seed in range(600)}
    asked = {layout(seed, "test").geometry for seed in test}
    assert not learnt & asked
    assert len(asked) > 150  # they do differ


@pytest.mark.parametrize(
    ("seed", "options", "says"),
    [
        (0, {"split": "test"}, "the test split has the seeds"),
        (SPLIT_SEED - 1, {"split": "train"}, "the train split has the seeds"),
        (0, {"split": "train", "disturb": 1.5}, "disturb"),
        (0, {"noise": 1}, "noise"),
    ],
)
def test_bad_options_are_refused(seed: int, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        login.tasks(2, seed, options)


def test_a_layout_fits_the_screen_without_overlaps() -> None:
    for seed in range(300):
        drawn = layout(seed, "train")
        rects = [*drawn.fields.values(), *drawn.buttons.values()]
        assert all(0 <= r[0] < r[2] <= SIZE and 0 <= r[1] < r[3] <= SIZE - 12 for r in rects)
        for i, a in enumerate(rects):
            assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in rects[i + 1 :])
