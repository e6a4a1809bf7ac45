"""docs/reference/adding.md names files, names in them and commands that are there."""

from __future__ import annotations

import re

from tests.support.documented import ROOT

PAGE = (ROOT / "docs/reference/adding.md").read_text(encoding="utf-8")
SECTIONS = {text.partition("\n")[0]: text for text in PAGE.split("\n## ")[1:]}


def paths(text: str) -> list[str]:
    return re.findall(r"(?<![\w/.])((?:launcher|training|eval|tests|tools|docs)/[\w./-]*\w)", text)


def test_every_path_is_there() -> None:
    assert len(paths(PAGE)) > 30
    assert [path for path in paths(PAGE) if not (ROOT / path).exists()] == []


def test_every_name_in_capitals_is_in_the_file_beside_it() -> None:
    """`launcher/spec/backends.py`: one line in `BUILT_IN`."""
    named = re.findall(r"`([\w/]+\.py)`: [^\n]*?`([A-Z]\w+)`", PAGE)
    assert len(named) >= 7
    for file, name in named:
        assert re.search(
            rf"^(?:class )?{name}\b|\b{name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE
        ), (file, name)


def test_every_kind_of_addition_has_a_row_a_section_and_a_command() -> None:
    rows = re.findall(r"^\| \[.*?\]\(#([\w-]+)\) \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    fields = ("of-the-job", "of-the-profile", "of-a-configuration")
    for kind in (*fields, "backend", "dialect", "reward", "agent", "environment", "importer", "rule", "record"):
        (row,) = [row for row in rows if kind in row[0]]
        assert "pytest -q tests/" in row[2]
        assert any(heading.lower().replace(" ", "-") == row[0] for heading in SECTIONS)
