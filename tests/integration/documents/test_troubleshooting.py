"""docs/reference/troubleshooting.md: every message of the page is in the code, and every reason is on the page."""

from __future__ import annotations

import re

import pytest

from launcher.reasons import Reason
from tests.support.cases import every_case
from tests.support.documented import FILLED, ROOT, literals, tracked

PAGE = (ROOT / "docs/reference/troubleshooting.md").read_text(encoding="utf-8")
HEADING = "| message | cause | what to do |\n|---|---|---|\n"
SHORTEST = 8  # letters outside the gaps: less would fit some literal by chance


def messages() -> list[str]:
    tables = [part.split("\n\n")[0] for part in PAGE.split(HEADING)[1:]]
    return [cell for table in tables for cell in re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Every string of the code that a user may read; FILLED stands where a value goes."""
    sources = tracked("launcher/*.py", "training/*.py", "eval/*.py")
    return [text for path in sources for _, text in literals(path)]


def pattern(message: str) -> re.Pattern[str]:
    """A message with its gaps: `...` stands for a value, or for words that the page leaves out."""
    return re.compile(".*?".join(map(re.escape, message.split("..."))), re.DOTALL)


def test_the_page_has_messages_of_every_kind() -> None:
    assert len(messages()) >= 40
    for message in messages():
        assert len(re.sub(r"[^a-z]", "", message.replace("...", "").lower())) >= SHORTEST


@every_case("message", messages())
def test_every_message_is_in_the_code(message: str, texts: list[str]) -> None:
    wanted = pattern(message)
    assert any(wanted.search(text.replace("`", "").replace(FILLED, "...")) for text in texts), (
        "no message has these words: correct the page"
    )


def test_a_message_that_is_gone_is_noticed(texts: list[str]) -> None:
    wanted = pattern("no message of the code ... has these words")
    assert not any(wanted.search(text) for text in texts)


def test_every_reason_has_a_row() -> None:
    table = PAGE.partition("## Reasons of a run that ended")[2]
    cells = re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(map(str, Reason))
