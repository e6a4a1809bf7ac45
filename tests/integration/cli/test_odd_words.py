"""Odd words for every argument of every verb: an answer or a refusal, never a fault of the launcher."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import sys
from pathlib import Path

import pytest

from launcher.cli import VERBS, arguments, main
from launcher.errors import Unreachable
from tests.support.odd_values import ODD_TEXTS

SEED = int(os.environ.get("SLIPWAY_FUZZ_SEED", "0"))
# they would stay (a shell, a port or a page that is served, a session), start a service, or ask an engine and a network
LEFT_OUT = {"forward", "cluster", "images", "dev", "monitor"}
ACTIONS_LEFT_OUT = {"start", "stop", "install", "uninstall", "set"}
WORDS = (
    *(text for text in ODD_TEXTS if text.encode(errors="replace").decode() == text),
    *("a-0123456789ab", "group-0123456789ab", "job.yaml", ".", "a/b", "a/", "/b", "a[lr=1]", "[", "]", "1", "-1", "0"),
    *(
        "99999999999999999999",
        "9" * 5000,
        "1e308",
        "nan",
        "inf",
        "1h",
        "0s",
        "9" * 400 + "d",
        "=x",
        "x=",
        "a=b=c",
        "!x",
    ),
    *("table", "json", "yaml", "csv", "local", "file:///", "file://", "s3://", "s3://b?x=y", "gs://", "az://c/../d"),
    *("file://a", "ftp://x", "http://[", "*", "?", "é", "-", "--", "@", "%s", "{0}", "\\"),
)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("SLIPWAY_", "XDG_", "AWS_", "KUBE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # object stores are far away; what is tried here is what the launcher makes of words. Looked up at each call: no
    # module that is imported while it is patched keeps the patch
    monkeypatch.setattr("launcher.store.objects.ObjectStore.at", _far_away)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "job.yaml").write_text("name: a\ncommand: [x]\nresources: {cpus: 100000}\n")
    (tmp_path / "work" / "slipway.yaml").write_text("store: ./store\nlocal: {state: ./state, cpus: 0.5}\n")
    (tmp_path / "work" / "store" / "runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def _far_away(url: str, **_: object) -> object:
    raise Unreachable(f"store {url[:40]}: far away")


def parsers(verb: str) -> list[tuple[list[str], argparse.ArgumentParser]]:
    """(words before, parser): of the verb, or of each of its actions."""
    made = arguments.parser(verb, VERBS[verb][0])
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            return [([name], one) for name, one in action.choices.items() if name not in ACTIONS_LEFT_OUT]
    return [([], made)]


def line(dice: random.Random, verb: str) -> list[str]:
    before, parser = dice.choice(parsers(verb))
    words = list(before)
    for action in parser._actions:
        needed = not action.option_strings
        if action.dest in ("help", "watch", "follow", "yes") or (not needed and dice.random() < 0.6):
            continue
        flag = [dice.choice(action.option_strings)] if action.option_strings else []
        if action.nargs == 0:
            words += flag
            continue
        choices = [str(choice) for choice in action.choices or ()]
        for _ in range(dice.choice((1, 1, 2)) if action.nargs in ("+", "*") else 1):
            value = dice.choice(choices) if choices and dice.random() < 0.7 else dice.choice(WORDS)
            if flag and dice.random() < 0.5 and flag[0].startswith("--"):
                words.append(f"{flag[0]}={value}")
            else:
                words += [*flag, value]
    return [verb, *words]


def tried(words: list[str]) -> int:
    out, err = io.StringIO(), io.StringIO()
    out.buffer = io.BytesIO()  # type: ignore[attr-defined]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    except SystemExit as error:
        code = int(error.code or 0)
    assert "Traceback" not in err.getvalue(), f"{words}\n{err.getvalue()}"
    assert code in range(6), f"{words}\n{code}\n{err.getvalue()}"
    return code


@pytest.mark.parametrize("verb", sorted(set(VERBS) - LEFT_OUT))
def test_odd_words_are_answered_or_refused(verb: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    dice = random.Random(f"{SEED} {verb}")
    for _ in range(40):
        tried(line(dice, verb))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("verb", sorted(set(VERBS) - LEFT_OUT))
def test_very_many_odd_words_are_answered_or_refused(verb: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    dice = random.Random(f"{SEED + 1} {verb}")
    for _ in range(1500):
        tried(line(dice, verb))
