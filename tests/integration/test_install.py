"""What a missing package's hint says can be typed as it stands."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from importlib import util

import pytest

from launcher.install import install
from tests.support.documented import ROOT, literals, tracked


def test_the_program_of_the_hint_is_there() -> None:
    words = shlex.split(install("docker"))
    assert words[-1] == "docker"
    done = subprocess.run([words[0], "--version"], capture_output=True, check=False)
    assert done.returncode == 0


def test_with_pip_it_is_this_pythons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.install.find_spec", lambda name: util.find_spec("json"))
    assert install("x").endswith(" -m pip install x")


def test_without_pip_and_uv_the_hint_names_no_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.install.find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    program = shlex.split(install("x"))[0]
    assert subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0


def test_no_text_of_the_launcher_takes_an_installer_for_granted() -> None:
    for path in tracked("launcher/*.py"):
        if path.name != "install.py":
            for number, text in literals(path):
                assert "uv pip install" not in text, f"{path.relative_to(ROOT)}:{number}"
