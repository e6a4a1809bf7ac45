"""docs/reference/actions.md: the parsers read every example of the page as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eval.actions import ActionType, ParseError, Unrepresentable
from eval.actions.dialects.registry import DIALECTS
from tools.reference.actions import ACTIONS, GRAMMARS, page, reason

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/actions.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    match = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def rows(text: str, heading: str) -> list[tuple[str, str]]:
    """The rows of the table under a heading row, each cell as the text that a reader copies."""
    table = text.partition(f"{heading}\n|---|---|\n")[2].split("\n\n")[0]
    return [(copied(first), copied(second)) for first, second in re.findall(r"^\| (.*) \| (.*) \|$", table, re.M)]


def copied(cell: str) -> str:
    lines = [re.sub(r"^(`+) ?(.*?) ?\1$", r"\2", line) for line in cell.split("<br>")]
    return "\n".join(lines).replace("\\|", "|").replace("&lt;", "<")


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_form_of_the_page_is_read_as_its_action(name: str) -> None:
    dialect = GRAMMARS[name].dialect
    forms = rows(section(name), "| action | as text |")
    fewest = 1 if name.startswith("place") else 10 if GRAMMARS[name].published else 30
    assert len(forms) >= fewest
    for action, text in forms:
        kind = re.sub(r"^`?([a-z_]+)`?.*", r"\1", action)
        if text.startswith("cannot be written"):
            continue
        assert dialect.parse(text).type == kind


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_answer_of_the_page_is_read_or_refused_as_it_says(name: str) -> None:
    dialect = GRAMMARS[name].dialect
    accepted = rows(section(name), "| answer | action |")
    refused = rows(section(name), "| answer | why |")
    assert len(accepted) > 1
    assert len(refused) > 3
    for answer, action in accepted:
        assert repr(dialect.parse_response(answer).action) == f"Action{action}"
    for answer, why in refused:
        with pytest.raises(ParseError) as error:
            dialect.parse_response(answer)
        assert str(error.value) == why


@pytest.mark.parametrize("name", [name for name in GRAMMARS if "| answer | repaired |" in section(name)])
def test_every_repair_of_the_page_is_made_as_it_says(name: str) -> None:
    dialect = GRAMMARS[name].dialect
    repaired = rows(section(name), "| answer | repaired |")
    assert repaired
    for answer, repairs in repaired:
        with pytest.raises(ParseError):
            dialect.parse_turn(answer)
        turn = dialect.parse_turn(answer, lenient=True)
        assert turn.actions
        assert "; ".join(turn.repairs) == repairs


def test_the_table_of_all_dialects_says_what_each_can_write() -> None:
    header, _, *lines = section("What each dialect can say").partition("| action ")[2].strip().split("\n")
    assert [cell.strip() for cell in header.strip("| ").split("|")] == list(GRAMMARS)
    assert len(lines) == len(ACTIONS)
    for action, line in zip(ACTIONS, lines, strict=True):
        for grammar, cell in zip(GRAMMARS.values(), line.split("|")[2:-1], strict=True):
            if cell.strip() == "yes":
                assert grammar.dialect.parse(grammar.dialect.format(action)).type == action.type
            else:
                with pytest.raises(Unrepresentable):
                    grammar.dialect.format(action)


def test_every_dialect_is_on_the_page() -> None:
    assert {name.split()[0] for name in GRAMMARS} == set(DIALECTS)


def test_there_is_an_example_of_every_type_of_action() -> None:
    assert {action.type for action in ACTIONS} == set(ActionType)


def test_an_answer_that_is_read_cannot_stand_among_the_refused() -> None:
    with pytest.raises(ValueError, match="is read as"):
        reason(GRAMMARS["dsl"].dialect, "Action: DONE()")


def test_what_becomes_of_an_answer_is_filled_in_and_a_dialect_without_a_section_is_missed() -> None:
    row = "| `Action: CLICK(y=0.5, x=0.25)` |"
    (line,) = [line for line in PAGE.split("\n") if line.startswith(row)]
    assert page(PAGE.replace(line, f"{row}  |")) == PAGE
    with pytest.raises(KeyError, match="waa"):
        page(PAGE.replace("\n## waa\n", "\n"))
