"""Every command of the README runs. A block is left to somebody else only by a comment right above it:
`<!-- ci: ... -->` for what .ci/run executes itself, `<!-- needs: cloud | gpu | kind -->` for what is not here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>ci|needs): (?P<why>[^>]*) -->\n)?```(?:sh|console|bash)\n(?P<body>.*?)```", re.DOTALL
)


def blocks() -> list[tuple[str | None, str]]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [(match["mark"], match["body"]) for match in BLOCK.finditer(text)]


def commands(body: str) -> list[str]:
    """The lines that a reader types: comments and blank lines left out, continued lines joined."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in body.replace("\\\n", " ").splitlines())
    return [line for line in lines if line]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of what a reader has in the clone, with a store and a queue of its own."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copy(ROOT / "slipway.yaml", folder)
    yield folder
    run("launcher local stop", folder)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, **home, "PATH": path, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_blocks_are_found() -> None:
    marks = [mark for mark, _ in blocks()]
    assert marks.count(None) >= 3
    assert marks.count("ci") == 1  # the two commands of the start: make demo, make test


def test_every_command_runs(project: Path) -> None:
    """In order and in one place, as a reader would."""
    for mark, body in blocks():
        if mark is None:
            for command in commands(body):
                done = run(command, project)
                assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"


def test_the_ci_block_is_what_ci_runs() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    for mark, body in blocks():
        if mark == "ci":
            for command in commands(body):
                if command.startswith("make "):
                    assert f"\n{command}\n" in script
