"""docs/reference/cli.md has every verb of the launcher and every program of training and evaluation."""

from __future__ import annotations

import argparse

import pytest

from launcher.cli import VERBS
from launcher.cli.arguments import parser
from tests.support.cases import every_case
from tests.support.documented import ROOT
from tools.reference.cli import PROGRAMS, program_parser

PAGE = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    assert f"\n{heading}\n" in PAGE
    return PAGE.partition(f"\n{heading}\n")[2].partition(f"\n{heading.split()[0]} ")[0]


def options(command: argparse.ArgumentParser) -> set[str]:
    names = {name for action in command._actions for name in action.option_strings if action.help != argparse.SUPPRESS}
    return names - {"-h", "--help"}


@every_case("verb", VERBS)
def test_every_option_of_every_verb_is_on_the_page(verb: str) -> None:
    text = section(f"## launcher {verb}")
    assert [name for name in sorted(options(parser(verb, VERBS[verb][0]))) if name not in text] == []


@pytest.mark.parametrize("name", dict.fromkeys(PROGRAMS))
def test_every_option_of_every_program_is_on_the_page(name: str) -> None:
    text = section(f"### python -m {name}")
    command = program_parser(name)
    assert command.prog == f"python -m {name}"
    assert [option for option in sorted(options(command)) if option not in text] == []


def test_a_program_that_reads_its_arguments_in_another_way_is_refused() -> None:
    with pytest.raises(ValueError, match="reads its arguments in another way"):
        program_parser("training.data")
