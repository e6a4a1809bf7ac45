"""No answer of a model, whatever it holds, may raise anything but ParseError: an evaluation would end with it.

`tests/unit/eval/test_any_answer_ends_nothing.py` asserts the same where a user sees it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from eval.actions import Action, ParseError, Unrepresentable
from eval.actions.dialects.base import Dialect, read_answer
from eval.actions.dialects.registry import DIALECTS, make_dialect
from eval.actions.geometry import Cells
from eval.benchmarks.agentnetbench.score import predicted_acts
from tests.contract.dialect.answers import NASTY, fuzzed

NAMES: Final = [*DIALECTS, "tests.contract.dialect.own:JsonLines"]
DIALECT: Final = {name: make_dialect(name, 4, False) for name in NAMES}
OTHER: Final = {  # other forms of ours
    "dsl, marks": make_dialect("dsl", 4, True),
    "dsl, pixels": DIALECT["dsl"].in_frame(Cells(1920, 1080)),
    "pyautogui, pixels": DIALECT["pyautogui"].in_frame(Cells(1920, 1080)),
}


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
    for read in (dialect.parse, dialect.parse_response, dialect.calls):
        outcome(lambda answer, read=read: read_answer(read, answer), text, ParseError)
    outcome(dialect.sections, text)
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
    for read in (dialect.parse, dialect.parse_response, dialect.calls):
        outcome(read, text, ParseError)


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY.keys())
@pytest.mark.parametrize("name", [*NAMES, *OTHER])
def test_an_answer_known_to_be_nasty_is_at_worst_a_parse_error(name: str, text: str) -> None:
    dialect = (DIALECT | OTHER)[name]
    is_harmless(dialect, text)
    if name in {**DIALECTS, **OTHER}:
        is_strict(dialect, text)


def fuzz(name: str, count: int, seed: int) -> None:
    dialect, chance = (DIALECT | OTHER)[name], random.Random(seed)
    read = 0
    for _ in range(count):
        text = fuzzed(chance)
        is_harmless(dialect, text)
        with contextlib.suppress(ParseError):
            read_answer(dialect.parse_response, text)
            read += 1
    assert read > count / 500, "the fuzz hardly ever makes an answer that can be read"


@pytest.mark.parametrize("name", ["dsl", "pyautogui", *OTHER])
def test_thousands_of_random_answers_are_at_worst_parse_errors(name: str) -> None:
    fuzz(name, 2_000, seed=20261122)


@pytest.mark.nightly
@pytest.mark.timeout(14_400)  # some five minutes of one idle core; an hour and more on a busy machine
@pytest.mark.parametrize("name", ["dsl", "pyautogui", *OTHER])
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
