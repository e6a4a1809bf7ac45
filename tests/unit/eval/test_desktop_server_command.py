"""The command that starts the desktop server: what it refuses, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.benchmarks.gtk_forms import forms as gtk_forms
from eval.config import EXIT_CONFIG
from eval.desktops.server.__main__ import TOKEN_VARIABLE, main, parser
from eval.environments import login

WRONG = [
    ([], "nothing to listen on"),
    (["--listen", "unix:/tmp/x"], f"--listen needs a token: --token-file FILE, or ${TOKEN_VARIABLE}"),
    (["--listen", "127.0.0.1:0", "--token-file", "/no/such/file"], "--token-file: /no/such/file cannot be read"),
    (["--listen", "127.0.0.1:0", "--token-file", "EMPTY"], "must hold one word"),
    (["--listen", "127.0.0.1:0", "--token-file", "WORDS"], "must hold one word"),
    (["--open-port", "70000"], "--open-port: 70000; allowed: 0 to 65535"),
]
UNREADABLE = [
    ["--listen", "5000"],
    ["--listen", "unix:x"],
    ["--listen", "h:99999"],
    ["--screen", "10x10"],
    ["--screen", "63x96"],
    ["--files", "x"],
]


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.mark.parametrize(("arguments", "said"), WRONG)
def test_what_is_wrong_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"EMPTY": "", "WORDS": "two words\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert main([str(tmp_path / each) if each in files else each for each in arguments]) == EXIT_CONFIG
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert "two words" not in err


@pytest.mark.parametrize("arguments", UNREADABLE)
def test_arguments_that_cannot_be_read(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert arguments[1] in capsys.readouterr().err


@pytest.mark.parametrize("screen", [(gtk_forms.WIDTH, gtk_forms.HEIGHT), (login.SIZE, login.SIZE)])
def test_the_screen_that_an_environment_asks_its_servers_for_is_taken(screen: tuple[int, int]) -> None:
    assert parser().parse_args(["--screen", f"{screen[0]}x{screen[1]}"]).screen == screen
