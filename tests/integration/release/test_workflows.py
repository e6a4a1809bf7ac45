"""actionlint and zizmor find nothing in .github, and would."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.needs import marked
from tools.release import ROOT

pytestmark = [marked("go"), pytest.mark.nightly, pytest.mark.timeout(900)]


def test_both_linters_are_green_and_each_finds_what_is_wrong(tmp_path: Path) -> None:
    done = subprocess.run(["make", "lint-workflows"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    file = tmp_path / "release.yaml"
    shutil.copy(ROOT / ".github/workflows/release.yaml", file)
    text = file.read_text(encoding="utf-8").replace("persist-credentials: false, ", "")
    file.write_text(text.replace("needs: [files, images]", "needs: [files, pictures]"), encoding="utf-8")
    for linter, said in (
        ([".tools/bin/actionlint"], 'needs job "pictures" which does not exist'),
        ([".venv-lint/bin/zizmor", "-q", "--offline"], "artipacked"),
    ):
        found = subprocess.run([*linter, file], cwd=ROOT, capture_output=True, text=True, check=False)
        assert found.returncode != 0
        assert said in found.stdout + found.stderr
