"""tools/audit.py with stand-ins for pip-audit and npm, which answer as the programs do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.needs import marked
from tools import audit

# pip-audit 2.10.0: the table and the summary on standard output and error; a failed request on standard error only
PIP_AUDIT = """#!/bin/sh
for lock; do :; done
case "$lock" in
  clean.lock) echo "No known vulnerabilities found" >&2 ;;
  bad.lock) echo "Found 1 known vulnerability in 1 package" >&2
    echo "Name   Version ID             Fix Versions"; echo "jinja2 2.10    PYSEC-2019-217 2.10.1"; exit 1 ;;
  away.lock) echo "ERROR:pip_audit._cli:Could not connect to the service" >&2; exit 1 ;;
esac
"""
NPM = """#!/bin/sh
[ "$1 $2" = "audit --package-lock-only" ] && grep -q lodash package-lock.json || exit 9
echo "1 high severity vulnerability"; exit 1
"""


pytestmark = marked("git")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("pip-audit", PIP_AUDIT), ("npm", NPM)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    root = tmp_path / "clone"
    (root / "web").mkdir(parents=True)
    for name in ("clean.lock", "bad.lock", "away.lock"):
        (root / name).write_text("jinja2==2.10\n", encoding="utf-8")
    (root / "web/package-lock.json").write_text('{"packages": {"node_modules/lodash": {}}}', encoding="utf-8")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    return root


def test_every_tracked_lock_is_asked_for(root: Path) -> None:
    assert audit.locks(root) == ["away.lock", "bad.lock", "clean.lock", "web/package-lock.json"]
    assert "requirements.lock" in audit.locks()


@pytest.mark.parametrize(
    ("lock", "code"), [("clean.lock", 0), ("bad.lock", 1), ("away.lock", 2), ("web/package-lock.json", 1)]
)
def test_a_finding_a_clean_lock_and_no_answer_are_three_things(root: Path, lock: str, code: int) -> None:
    assert audit.audit(lock, root) == code


def test_a_program_that_is_missing_is_no_clean_night(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(root))
    assert audit.audit("clean.lock", root) == 2
    assert "pip-audit: is not on the PATH: `make audit`" in capsys.readouterr().out
