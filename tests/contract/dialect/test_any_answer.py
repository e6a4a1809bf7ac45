"""No answer of a model, whatever it holds, may raise anything but ParseError: an evaluation would end with it.

`tests/unit/eval/test_any_answer_ends_nothing.py` asserts the same where a user sees it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
import pytest

from eval.actions import Action, ParseError, Unrepresentable
from eval.actions.dialects.base import Dialect, read_answer
from eval.actions.dialects.registry import DIALECTS, make_dialect
from eval.actions.geometry import Cells
from eval.benchmarks.agentnetbench.score import predicted_acts
from tests.contract.dialect.answers import NASTY, damaged, fuzzed
from tests.support.cases import every_case
from tools.reference.actions import ACTIONS, GRAMMARS, answers

NAMES: Final = [*DIALECTS, "tests.contract.dialect.own:JsonLines"]
DIALECT: Final = {name: make_dialect(name, 4, False) for name in NAMES}
OTHER: Final = {  # other forms of ours
    "dsl, marks": make_dialect("dsl", 4, True),
    "dsl, pixels": DIALECT["dsl"].in_frame(Cells(1920, 1080)),
    "pyautogui, pixels": DIALECT["pyautogui"].in_frame(Cells(1920, 1080)),
    **{
        f"{name}, pixels": DIALECT[name].in_frame(Cells(1280, 800))
        for name in ("computer_13", "anthropic-20251124", "openai", "ui-tars-1.5", "qwen2.5-vl")
    },
    "waa, marks": make_dialect("waa", 4, True),
}
CODE: Final = ("dsl", "dsl, marks", "dsl, pixels", "pyautogui", "pyautogui, pixels")


def outcome(call: Callable[[str], Any], text: str, *allowed: type[Exception]) -> Any:
    """What the call gives, or None for an allowed error. Fails with the text for any other error."""
    try:
        return call(text)
    except allowed:
        return None
    except Exception as error:
        raise AssertionError(f"{text[:300]!r} ({len(text)} characters) raised {error!r}") from error


def is_harmless(dialect: Dialect, text: str) -> None:
    """Every reader of answers gives an action that can be stored and shown again, or raises ParseError."""
    for read in (dialect.parse, dialect.parse_response, dialect.parse_turn, dialect.calls):
        outcome(lambda answer, read=read: read_answer(read, answer), text, ParseError)
    outcome(dialect.sections, text)
    lenient = outcome(lambda answer: read_answer(partial(dialect.parse_turn, lenient=True), answer), text, ParseError)
    for action in () if lenient is None else lenient.actions:
        assert Action.from_json(msgspec.json.decode(msgspec.json.encode(action.to_json()))) == action
    outcome(lambda answer: predicted_acts(answer, dialect), text, ParseError)
    for response in (
        outcome(lambda answer: read_answer(dialect.parse_response, answer), text, ParseError),
        outcome(lambda answer: read_answer(dialect.parse, answer), text, ParseError),
    ):
        action = response if response is None or isinstance(response, Action) else response.action
        if action is not None:
            stored = msgspec.json.decode(msgspec.json.encode(action.to_json()))
            assert Action.from_json(stored) == action
            with contextlib.suppress(Unrepresentable):
                dialect.format(action)


def is_strict(dialect: Dialect, text: str) -> None:
    """Our own dialects raise ParseError themselves; nothing needs the guard around them."""
    for read in (dialect.parse, dialect.parse_response, dialect.parse_turn, dialect.calls):
        outcome(read, text, ParseError)
    outcome(partial(dialect.parse_turn, lenient=True), text, ParseError)


@every_case("text", NASTY.values(), ids=NASTY.keys())
@pytest.mark.parametrize("name", [*NAMES, *OTHER])
def test_an_answer_known_to_be_nasty_is_at_worst_a_parse_error(name: str, text: str) -> None:
    dialect = (DIALECT | OTHER)[name]
    is_harmless(dialect, text)
    if name in {**DIALECTS, **OTHER}:
        is_strict(dialect, text)


def answers_of(name: str) -> list[str]:
    """Answers in this dialect, right and wrong ones: what the page of the dialects shows."""
    grammar = GRAMMARS[name.split(",")[0]]
    given = answers(name.split(",")[0])
    for action in ACTIONS:
        with contextlib.suppress(Unrepresentable):
            given.append(grammar.dialect.format_turn([action]))
            given.append(grammar.dialect.format_turn([action, ACTIONS[0]], "Because."))
    return given


def fuzz(name: str, count: int, seed: int) -> None:
    dialect, chance = (DIALECT | OTHER)[name], random.Random(seed)
    whole = answers_of(name)
    share = 1.0 if name in CODE else 0.1  # of answers that no published form is like
    read = 0
    for _ in range(count):
        text = fuzzed(chance) if chance.random() < share else damaged(chance.choice(whole), chance)
        is_harmless(dialect, text)
        is_strict(dialect, text)
        with contextlib.suppress(ParseError):
            read_answer(dialect.parse_turn, text)
            read += 1
    assert read > count / 500, "the fuzz hardly ever makes an answer that can be read"


@pytest.mark.parametrize("name", [*DIALECTS, *OTHER])
def test_random_answers_are_at_worst_parse_errors(name: str) -> None:
    fuzz(name, 1_000, seed=20261122)


@pytest.mark.nightly
@pytest.mark.timeout(14_400)  # up to an hour of one busy core; the published ones in pixels run their short test only
@pytest.mark.parametrize("name", [*DIALECTS, *CODE[1:3], CODE[4]])
def test_a_million_random_answers_are_at_worst_parse_errors(name: str) -> None:
    fuzz(name, 1_000_000, seed=1)


@pytest.mark.parametrize("error", [RecursionError("deep"), OverflowError(), KeyError("x"), MemoryError(), TypeError()])
def test_whatever_a_dialect_of_ones_own_raises_is_a_parse_error_that_says_so(error: Exception) -> None:
    def read(text: str) -> object:
        raise error

    with pytest.raises(ParseError, match=f"the dialect failed: {type(error).__name__}"):
        read_answer(read, "hello")


def test_a_heading_of_a_past_turn_is_left_out_where_the_answer_cannot_be_read_with_it() -> None:
    assert read_answer(lambda text: text, "# Step 3:\nx") == "# Step 3:\nx"  # a dialect that can read it does
    for name, answer in [
        ("pyautogui", "## Thought:\nGo on.\n\n## Code:\nDONE"),
        ("dsl", "Thought: Go on.\nAction: DONE()"),
    ]:
        for heading in ("# Step 3:\n", "# Step 12\n", "\n# Step 3: \n"):
            read = read_answer(DIALECT[name].parse_response, heading + answer)
            assert (read.thought, read.action.type) == ("Go on.", "done")
        for text in (f"# Step x:\n{answer}", f"# Step 3: click\n{answer}", f"{answer}\n# Step 4:\n{answer}"):
            with pytest.raises(ParseError):
                read_answer(DIALECT[name].parse_response, text)
