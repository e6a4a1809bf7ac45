"""The command line as a user calls it: a process of its own, state and configuration apart from this user's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def launcher(cwd: Path, *words: str, timeout: float = 280.0) -> str:
    """Standard output of `launcher WORDS...`, which has to succeed within `timeout` seconds."""
    environ = {**os.environ, "XDG_STATE_HOME": str(cwd / "home"), "XDG_CONFIG_HOME": str(cwd / "home")}
    done = subprocess.run(
        [Path(sys.executable).with_name("launcher"), *words],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def local_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The present folder is a project with a store and a queue of its own; its runs end with it."""
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    monkeypatch.chdir(folder)
    (folder / "slipway.yaml").write_text(f"store: {folder}/store\nlocal: {{state: {folder}/local, cpus: 64}}\n")
    try:
        yield folder
    finally:
        stop = [Path(sys.executable).with_name("launcher"), "local", "stop", "--runs"]
        subprocess.run(stop, capture_output=True, check=False)
