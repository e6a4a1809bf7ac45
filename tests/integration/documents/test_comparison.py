"""The comparison with other launchers: each test that it names exists, and each fact about others has a source."""

from __future__ import annotations

import ast
import datetime
import re

import pytest

from tests.support.documented import ROOT

PAGE = ROOT / "docs/project/comparison.md"


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table after a line that begins so; the table's heading comes first."""
    text = "\n" + PAGE.read_text(encoding="utf-8")
    text = text.partition(f"\n{heading}")[2]
    table = re.search(r"^(?:\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    lines = table[0].strip().split("\n")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [cells[0], *cells[2:]]


FEATURES = rows("# Beside other launchers")
TESTS = rows("## Tests")
RUN = rows("## Run here")
SOURCES = rows("## Sources")


@pytest.mark.parametrize("row", FEATURES[1:], ids=lambda row: row[0])
def test_each_row_names_its_test(row: list[str]) -> None:
    assert len(row) == len(FEATURES[0])
    assert row[2] in {number for number, _ in TESTS[1:]} or (row[2] == "none" and row[1].startswith("no"))


@pytest.mark.parametrize("row", TESTS[1:], ids=lambda row: row[0])
def test_the_test_exists_and_is_named(row: list[str]) -> None:
    path, _, name = row[1].strip("`").partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, row[1]
    assert row[0] in {feature[2] for feature in FEATURES[1:]}


@pytest.mark.parametrize("row", FEATURES[1:], ids=lambda row: row[0])
def test_what_is_said_of_others_has_a_source(row: list[str]) -> None:
    known = {source[0] for source in SOURCES[1:]}
    for cell in row[3:]:
        named = set(re.findall(r"\[([A-Z]\d)\]", cell))
        assert cell == "—" or named, cell
        assert named <= known


def test_every_source_has_an_address_a_version_and_a_day_and_is_used() -> None:
    said = {name for row in FEATURES[1:] for cell in row[3:] for name in re.findall(r"\[([A-Z]\d)\]", cell)}
    for name, page, version, read in SOURCES[1:]:
        assert re.fullmatch(r"\[[^]]+\]\(https://[^)]+\)( and \[[^]]+\]\(https://[^)]+\))?", page), name
        assert version
        assert datetime.date.fromisoformat(read), name
        assert name in said


def test_the_peers_that_people_ask_about_are_compared() -> None:
    peers = ["SkyPilot", "dstack", "Kubeflow Trainer", "Kueue, kueuectl", "TorchX", "hf jobs", "openadapt-evals"]
    assert FEATURES[0][3:] == peers
    assert {row[0].split()[0] for row in RUN[1:]} == {"TorchX", "hf", "dstack", "kueuectl"}
