"""`launcher run`: flags and a command become a job, held to the same rules as a file's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a home of its own and no profile."""
    for name in [name for name in os.environ if name.startswith(("SLIPWAY_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launcher(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launcher.cli", *arguments], input=given, capture_output=True, text=True, check=False
    )


ALL = [
    *("--name", "probe", "--image", "slipway-cpu", "--backend", "local", "--gpus", "0", "--cpus", "2"),
    *("--memory", "1Gi", "--deadline", "10m", "--retries", "2", "--env", "A=1=2", "--env", "B=", "--output", "out"),
    *("--input", "data=./data", "--label", "team=agents", "--code", "code"),
]


COMMAND = ["--", "python", "-c", "print('a b')", "--flag", "1e400", "--", "no", ""]


def test_the_file_that_it_prints_is_the_same_run(home: Path) -> None:
    (home / "code").mkdir()
    (home / "code" / "a.py").write_text("1")
    (home / "data").mkdir()
    printed = launcher("run", *ALL, "-o", "yaml", *COMMAND)
    assert printed.returncode == 0, printed.stderr
    (home / "job.yaml").write_text(printed.stdout)
    planned = launcher("run", *ALL, "--dry-run", "-o", "json", *COMMAND)
    from_file = launcher("submit", "job.yaml", "--dry-run", "-o", "json")
    assert json.loads(planned.stdout) == json.loads(from_file.stdout), planned.stderr + from_file.stderr
    assert json.loads(planned.stdout)[0]["state"] == "would be submitted"
    assert not (home / "home").exists() or not any((home / "home").rglob("job.json"))
