"""Verbs of other programs: who types them learns ours."""

from __future__ import annotations

import pytest

from launcher.cli import MEANS, VERBS, main, verb_meant

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("word", "verb"),
    [
        ("ps", "status"),  # the nearest by letters are `push` and `logs`
        ("ls", "status"),
        ("down", "cancel"),
        ("delete", "cancel"),
        ("port-forward", "forward"),
        ("descibe", "status"),
        ("statsu", "status"),
        ("STATUS", "status"),
        ("queue", "queues"),
        ("version", "--version"),
    ],
)
def test_a_word_of_another_program_names_our_verb(word: str, verb: str, capsys: Capture) -> None:
    assert main([word, "x"]) == 2
    said = capsys.readouterr().err
    assert said == f"launcher: unknown verb `{word}`. Did you mean `{verb}`? `launcher --help` lists them.\n"


def test_what_is_named_can_be_typed(capsys: Capture) -> None:
    assert not VERBS.keys() & MEANS.keys()
    for verb in set(MEANS.values()):
        if verb in VERBS:
            with pytest.raises(SystemExit, match=r"^0$"):
                main([verb, "--help"])
        else:
            assert main([verb]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("word", ["xyzzy", "", "ä", "-x", "s" * 100_000])
def test_where_nothing_is_near_nothing_is_named(word: str, capsys: Capture) -> None:
    assert verb_meant(word) == ""
    assert main([word]) == 2
    assert "Did you mean" not in capsys.readouterr().err


def test_help_of_a_verb_as_git_and_kubectl_print_it(capsys: Capture) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["help", "cancel"])
    assert capsys.readouterr().out.startswith("usage: launcher cancel ")
    assert main(["help"]) == 0
    assert capsys.readouterr().out.startswith("usage: launcher VERB ")
    assert main(["help", "xyzzy"]) == 0
