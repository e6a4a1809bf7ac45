"""Rewards: what each one gives, how a configuration names them, and what happens when one fails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.actions import Action, ActionType, ParseError
from eval.actions.dialects.dsl import Dsl
from eval.actions.dialects.pyautogui import PyAutoGui
from eval.config import ConfigError, convert
from eval.desktop import DesktopGone, Expected
from eval.episodes import Step
from training.rewards import RewardSpec, SampledAnswer, load, score

DSL = Dsl(4)
BOX = (0.4, 0.4, 0.2, 0.1)
CLICK = Expected(Action(ActionType.CLICK, x=0.5, y=0.45), BOX)
TYPING = Expected(Action(ActionType.TYPE, text="alice"))


def attempt(
    text: str, expected: Expected | None = CLICK, *, tokens: int = 5, where: str = "episode e step 0"
) -> SampledAnswer:
    parsed: Action | ParseError
    try:
        parsed = DSL.parse_response(text).action
    except ParseError as error:
        parsed = error
    return SampledAnswer([], [], text, tokens, False, parsed, expected, None, DSL, where)


def one(name: str, text: str, expected: Expected | None = CLICK, tokens: int = 5, **args: Any) -> float:
    (reward,) = load([RewardSpec(name=name, args=args)])
    (row,) = score([reward], [attempt(text, expected, tokens=tokens)]).rows
    assert row is not None
    return row[0]


def click(x: float, y: float) -> str:
    return f"Action: CLICK(x={x:.4f}, y={y:.4f})"


@pytest.mark.parametrize(
    ("name", "text", "expected", "value"),
    [
        ("format", click(0.1, 0.1), CLICK, 1),
        ("format", click(0.1, 0.1) + "\n" + click(0.1, 0.1), CLICK, 0),
        ("format", "", CLICK, 0),
        ("action_type", click(0.9, 0.9), CLICK, 1),
        ("action_type", "Action: RIGHT_CLICK(x=0.5000, y=0.4500)", CLICK, 0),
        ("action_type", "no action", CLICK, 0),
        ("inside_box", click(0.41, 0.41), CLICK, 1),
        ("inside_box", click(0.39, 0.41), CLICK, 0),
        ("inside_box", "Action: DONE()", CLICK, 0),
        ("inside_box", "nonsense", CLICK, 0),
        ("match", click(0.41, 0.41), CLICK, 1),
        ("match", "Action: RIGHT_CLICK(x=0.5000, y=0.4500)", CLICK, 0),
        ("match", 'Action: TYPE(text="alice")', TYPING, 1),
        ("match", 'Action: TYPE(text="bob")', TYPING, 0),
        ("agentnetbench", click(0.41, 0.41), CLICK, 1),
        ("agentnetbench", "Action: RIGHT_CLICK(x=0.5000, y=0.4500)", CLICK, 0),
        ("agentnetbench", 'Action: TYPE(text="alice")', TYPING, 1),
        ("agentnetbench", "nonsense", TYPING, 0),
    ],
)
def test_what_a_reward_gives(name: str, text: str, expected: Expected, value: float) -> None:
    assert one(name, text, expected) == value


CODE = PyAutoGui()
AT = Action(ActionType.CLICK, x=0.5, y=0.45)
ELSEWHERE = Action(ActionType.CLICK, x=0.9, y=0.9)
TYPED = Action(ActionType.TYPE, text="alice")


def turn(name: str, *given: Action, recorded: tuple[Action, ...] = ()) -> float:
    """The reward of an answer with several actions; `recorded`: the recorded answer's, where no expert judged."""
    text = CODE.format_turn(given)
    parsed, *further = CODE.parse_turn(text).actions
    step, expected = None, CLICK
    if recorded:
        step = Step(index=0, screenshot="000.png", action=recorded[0], further_actions=recorded[1:])
        expected = Expected(recorded[0])
    answer = SampledAnswer([], [], text, 5, False, parsed, expected, step, CODE, "here", tuple(further))
    (reward,) = load([RewardSpec(name=name)])
    (row,) = score([reward], [answer]).rows
    assert row is not None
    return row[0]


@pytest.mark.parametrize("name", ["match", "agentnetbench", "action_type", "inside_box", "distance"])
def test_actions_beyond_the_wanted_one_cost_their_share(name: str) -> None:
    """AgentNetBench's later revision: |ground truth| / |predicted|."""
    assert turn(name, AT) == 1
    assert turn(name, AT, TYPED) == pytest.approx(1 / 2)
    assert turn(name, AT, TYPED, ELSEWHERE, ELSEWHERE) == pytest.approx(1 / 4)
    assert turn(name, TYPED, AT) < 1 / 2  # by position: the right one comes too late


@pytest.mark.parametrize("name", ["match", "agentnetbench"])
def test_a_recorded_answer_with_several_actions_wants_them_all(name: str) -> None:
    both = (AT, TYPED)
    assert turn(name, *both, recorded=both) == 1
    assert turn(name, AT, recorded=both) == pytest.approx(1 / 2)
    assert turn(name, AT, TYPED, TYPED, recorded=both) == pytest.approx(2 / 3)


def test_distance_falls_off_outside_the_box() -> None:
    assert one("distance", click(0.41, 0.49)) == 1
    assert one("distance", click(0.3, 0.45), scale=0.2) == pytest.approx(math.exp(-0.1 / 0.2))
    assert one("distance", click(0.7, 0.6)) == pytest.approx(math.exp(-math.hypot(0.1, 0.1) / 0.1))
    assert one("distance", "Action: DONE()") == 0
    without_box = Expected(CLICK.action)
    assert one("distance", click(0.5, 0.55), without_box) == pytest.approx(math.exp(-1))


@given(x=st.floats(0, 1), y=st.floats(0, 1))
def test_no_point_outside_the_box_earns_as_much_as_one_inside(x: float, y: float) -> None:
    text = click(x, y)
    inside, near = one("inside_box", text), one("distance", text)
    assert 0 <= near <= 1
    assert (near == 1) == (inside == 1)


def test_the_benchmark_score_depends_on_the_version() -> None:
    expected = Expected(Action(ActionType.SCROLL, direction="down", amount=4))
    text = 'Action: SCROLL(direction="down", amount=2)'
    assert one("agentnetbench", text, expected, version="v1") == 1
    assert one("agentnetbench", text, expected, version="v2") == 0.5


@pytest.mark.parametrize(("tokens", "value"), [(1, 0), (6, 0), (8, -0.5), (10, -1), (30, -1)])
def test_length_punishes_the_last_part_before_the_limit(tokens: int, value: float) -> None:
    assert one("length", "whatever", tokens=tokens, limit=10, margin=4) == pytest.approx(value)


# Functions of a user's own, named by import path.


def brief(attempts: Sequence[SampledAnswer], *, limit: int = 3) -> list[float | None]:
    return [float(attempt.tokens <= limit) for attempt in attempts]


def odd(attempts: Sequence[SampledAnswer], *, kind: str) -> Any:
    bad = [attempt.text == "bad" for attempt in attempts]
    if kind == "raise" and any(bad):
        raise KeyError("who")
    if kind == "gone":
        raise DesktopGone("judge.example:80 refused")
    if kind == "short":
        return [1.0]
    values = {"nan": math.nan, "inf": -math.inf, "none": None, "word": "good"}
    return [values[kind] if is_bad else 1.0 for is_bad in bad]


async def waiting(attempts: Sequence[SampledAnswer]) -> list[float]:
    return []


HERE = __name__


def test_a_function_of_ones_own_gets_its_arguments() -> None:
    assert one(f"{HERE}:brief", "x", tokens=4) == 0
    assert one(f"{HERE}:brief", "x", tokens=4, limit=4) == 1


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        ([], "name one at least"),
        ([{"name": "inside"}], "inside.*unknown; allowed: format"),
        ([{"name": "distance", "args": {"scale": 0}}], r"rewards\[0\] \(distance\): args.*>.*0"),
        ([{"name": "distance", "args": {"width": 1}}], "width"),
        ([{"name": "length", "args": {"limit": 3, "margin": 4}}], "margin must be at most limit"),
        ([{"name": "reward_model", "args": {"path": "nowhere"}}], "no folder nowhere"),
        ([{"name": "format"}, {"name": "format"}], "two rewards are called format"),
        ([{"name": "format", "weight": 0}], "all weights are 0"),
        ([{"name": "format", "weight": math.inf}], "weight must be finite"),
        ([{"name": "no.such.module:fn"}], "there is no module no in the working folder"),
        ([{"name": f"{HERE}:nothing"}], "has no nothing"),
        ([{"name": f"{HERE}:BOX"}], "BOX is a tuple; needed: a function"),
        ([{"name": f"{HERE}:waiting"}], "not async"),
        ([{"name": f"{HERE}:brief", "args": {"most": 3}}], "cannot be called as brief"),
        ([{"name": f"{HERE}:odd"}], "kind"),
    ],
)
def test_a_bad_reward_is_one_clear_error(specs: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(convert(specs, list[RewardSpec], "config"))


def scored(kind: str, *, weight: float = 1.0) -> Any:
    rewards = load([RewardSpec(name="format"), RewardSpec(name=f"{HERE}:odd", weight=weight, args={"kind": kind})])
    return score(rewards, [attempt(click(0.5, 0.5)), attempt("bad", where="episode e7 step 3"), attempt("fine")])


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("nan", "odd: gave nan for episode e7 step 3"),
        ("inf", "odd: gave -inf for episode e7 step 3"),
        ("word", "odd: gave 'good' for episode e7 step 3"),
        ("raise", "odd: raised KeyError: 'who' at episode e7 step 3"),
        ("short", "odd: gave 1 values for 3 attempts"),
    ],
)
def test_a_reward_that_is_wrong_ends_the_training_and_names_the_sample(kind: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        scored(kind)


def test_an_attempt_without_a_judgement_is_left_out_and_counted() -> None:
    scores = scored("none")
    assert scores.rows == [[1, 1], None, [0, 1]]
    assert scores.dropped == 1
    assert scores.unjudged == {"odd: no judgement": 1}


def test_a_judge_that_is_gone_leaves_all_attempts_out() -> None:
    scores = scored("gone")
    assert scores.rows == [None, None, None]
    assert scores.unjudged == {"odd: DesktopGone: judge.example:80 refused": 3}


def test_a_reward_that_is_only_watched_leaves_nothing_out() -> None:
    scores = scored("gone", weight=0.0)
    assert scores.dropped == 0
    assert all(row is not None and math.isnan(row[1]) for row in scores.rows)
    assert sum(scores.unjudged.values()) == 3


def test_a_reward_model_needs_its_folder_only_when_it_scores(tmp_path: Path) -> None:
    (reward,) = load([RewardSpec(name="reward_model", args={"path": str(tmp_path)})])
    with pytest.raises(ConfigError, match="reward"):
        score([reward], [attempt("x")])
