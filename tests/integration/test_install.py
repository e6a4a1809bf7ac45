"""What a missing package's hint says can be typed as it stands."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from launcher.install import install


def test_the_program_of_the_hint_is_there() -> None:
    words = shlex.split(install("docker"))
    assert words[-1] == "docker"
    done = subprocess.run([words[0], "--version"], capture_output=True, check=False)
    assert done.returncode == 0


def test_without_pip_and_uv_the_hint_names_no_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.install.find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    program = shlex.split(install("x"))[0]
    assert subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0
