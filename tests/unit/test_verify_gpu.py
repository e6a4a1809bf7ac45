"""tools/verify-gpu: what it reads from the page, what it finds missing, what the table says."""

from __future__ import annotations

import datetime

import pytest

from tools import verify_gpu
from tools.verify_gpu import Card, Line, Outcome, Unusable

A10G = Card("NVIDIA A10G", 24.15, "580.65")
PAGE = r"""## It needs a GPU

| | what | tried instead |
|---|---|---|
| G1 | a step | nothing |

### To close them

| | command | needs | minutes | what it prints |
|---|---|---|---|---|
| G1 | `X=1 python -m a.b` | 1 card, 24 GB, `json`, `sh` | 3 | a row `\| a \|` and `b`; then `c`, by hand |
| G2 | `true` | 2 cards, a key | .5 | `x` |

## Another section

| G3 | `false` | 1 card | 1 | `y` |
"""


def test_the_pages_table_is_the_list() -> None:
    first, second = verify_gpu.lines(PAGE)
    assert (first.name, first.command, first.minutes, second.minutes) == ("G1", "X=1 python -m a.b", 3.0, 0.5)
    assert first.texts == ["| a |", "b"]


def test_a_page_without_the_table_is_said() -> None:
    with pytest.raises(Unusable, match="no table of lines"):
        verify_gpu.lines("# Nothing")


@pytest.mark.parametrize(
    ("needs", "cards", "missing"),
    [
        ("1 card, 24 GB, `json`, `sh`", [A10G], []),
        ("1 card", [], ["1 card"]),
        ("8 cards, 80 GB", [A10G, A10G], ["8 cards", "80 GB"]),
        ("1 card, `no_such_package_here`", [A10G], ["`no_such_package_here`"]),
        ("1 card, recordings of yours", [A10G], ["recordings of yours"]),
    ],
)
def test_what_is_missing_is_said_in_the_pages_words(needs: str, cards: list[Card], missing: list[str]) -> None:
    assert verify_gpu.lacks(Line("G1", "true", needs, 1.0, "`x`"), cards) == missing


def test_a_line_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Unusable, match="G9: is no line; allowed: G1, G2"):
        verify_gpu.chosen(["G9"], verify_gpu.lines(PAGE))


def test_the_table_has_its_day_the_card_and_no_broken_cell() -> None:
    line = Line("G1", "a | b", "1 card", 1.0, "`| a |`")
    day = datetime.datetime(2026, 11, 29, 12, 0, tzinfo=datetime.UTC)
    text = verify_gpu.table([Outcome(line, "shown", "`| a |`", 2.4)], [A10G], day, "abc")
    assert text.startswith(
        "# Lines for one card, 2026-11-29 12:00 UTC\n\n- NVIDIA A10G, 24 GB, driver 580.65\n- Slipway at abc;"
    )
    assert text.endswith("| G1 | shown | 2 | `a \\| b` | `\\| a \\|` |\n")
