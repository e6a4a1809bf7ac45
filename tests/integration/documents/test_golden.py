"""`make golden` writes every generated file, and a new field of the job needs two source files and that command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documented import tracked
from tools import golden

ROOT = Path(__file__).resolve().parents[3]
COPIED = ("launcher", "training", "eval", "tools", "docs", "examples", "slipway.yaml", "pyproject.toml")
TESTS = ("tests/__init__.py", "tests/support", "tests/unit")
FIELD = 'Field("colour", Text(), "what the report paints this run with", "none"),\n    '
JOB = "name: painted\ncommand: [echo]\ncolour: red\n"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    for path in tracked(*COPIED, *TESTS):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return folder


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "SLIPWAY_STORE": "file:///nowhere"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", golden.PAGES)
def test_every_generated_page_is_up_to_date(name: str) -> None:
    assert list(golden.outdated(name)) == [], "run `make golden`"


def insert(path: Path, before: str, line: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, line + before), encoding="utf-8")


def test_a_new_field_of_the_job_needs_two_source_files_and_make_golden_which_removes_what_is_left(clone: Path) -> None:
    insert(clone / "launcher/spec/check/schema.py", 'Field(\n        "matrix",', FIELD)
    insert(clone / "launcher/spec/model.py", "    @property\n    def leading", "    colour: str | None = None\n\n")
    left = clone / "tests/unit/kubernetes/golden/gone/gone.yaml"
    left.parent.mkdir()
    left.write_text("kind: Job\n")
    stale = python(clone, "-m", "tools.golden", "--check")
    assert (stale.returncode, stale.stderr) == (1, "")
    assert "docs/reference/job.md" in stale.stdout
    assert "gone.yaml is no longer generated" in stale.stdout
    written = python(clone, "-m", "tools.golden")
    assert written.returncode == 0, written.stderr
    assert not left.exists()
    assert written.stdout.splitlines()[:-1] == stale.stdout.splitlines()[:-1]
    assert python(clone, "-m", "tools.golden", "--check").returncode == 0
    # the field reaches job.json without another line of source
    (clone / "painted.yaml").write_text(JOB)
    rendered = python(clone, "-m", "launcher.cli", "render", "painted.yaml", "--backend", "local")
    assert rendered.returncode == 0, rendered.stderr
    assert "\n  colour: red\n" in rendered.stdout


def test_an_unknown_argument_is_refused() -> None:
    done = python(ROOT, "-m", "tools.golden", "--chek")
    assert (done.returncode, done.stderr) == (2, "unknown argument --chek; allowed: --check\n")
