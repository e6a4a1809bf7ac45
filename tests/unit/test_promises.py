"""docs/reference/promises.md agrees with what it promises, as far as a program can tell."""

from __future__ import annotations

import re

import launcher
from tests.support.documented import ROOT

TEXT = (ROOT / "docs/reference/promises.md").read_text(encoding="utf-8")


def test_what_holds_a_promise_exists() -> None:
    named = re.findall(r"`((?:tests|k8s)/[\w./-]+)`", TEXT)
    assert len(named) > 10
    for path in named:
        assert (ROOT / path).exists(), path


def test_the_exit_codes_are_those_of_the_command_line() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    table = re.search(r"\| exit code \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", page)
    (row,) = re.findall(r"^\| exit codes \| ([^|]*)", TEXT, re.MULTILINE)
    assert table is not None
    assert re.findall(r"(\d+) ", row) == re.findall(r"^\| (\d+) \|", table[1], re.MULTILINE)


def test_the_python_api_is_what_its_page_names() -> None:
    page = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    assert [name for name in launcher.__all__ if name not in page] == []


def test_a_deprecation_lives_for_one_minor_version() -> None:
    """What is deprecated is listed, with the version that refuses it."""
    assert (
        "Deprecated today, refused from 0.2 on: the option `-o DIR` of `launcher render`, which is `--to DIR` now."
        in TEXT
    )
    assert launcher.__version__.rpartition(".")[0] == "0.1", "list what 0.1.0 had and this version warns of"
