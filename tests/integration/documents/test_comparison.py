"""The comparison with other launchers: each test that it names exists, and each fact about others has a source."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.documented import ROOT

PAGE = ROOT / "docs/project/comparison.md"


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table after a line that begins so; the table's heading comes first."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n{heading}")[2]
    table = re.search(r"^(?:\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    lines = table[0].strip().split("\n")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [cells[0], *cells[2:]]


FEATURES = rows("four was run by us")
SOURCES = rows("## Sources")


@pytest.mark.parametrize("row", FEATURES[1:], ids=lambda row: row[0])
def test_the_test_that_ran_it_exists(row: list[str]) -> None:
    assert len(row) == len(FEATURES[0])
    if row[2] == "none":
        assert row[1].startswith("no")
        return
    path, _, name = row[2].strip("`").partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert name in names, row[2]


@pytest.mark.parametrize("row", FEATURES[1:], ids=lambda row: row[0])
def test_what_is_said_of_others_has_a_source(row: list[str]) -> None:
    known = {source[0] for source in SOURCES[1:]}
    for cell in row[3:]:
        named = set(re.findall(r"\[([A-Z]\d)\]", cell))
        assert cell == "—" or named, cell
        assert named <= known


def test_every_source_has_an_address_and_a_version_and_is_used() -> None:
    said = {name for row in FEATURES[1:] for cell in row[3:] for name in re.findall(r"\[([A-Z]\d)\]", cell)}
    for name, page, version in SOURCES[1:]:
        assert re.fullmatch(r"\[[^]]+\]\(https://[^)]+\)", page)
        assert version
        assert name in said
