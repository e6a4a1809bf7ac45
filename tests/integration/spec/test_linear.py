"""The search for secrets costs in proportion to the text: a megabyte of almost-secrets is looked through at once.

A search that goes back for each beginning takes hours for such a text: it ends by the limit of tests that hang.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import HANGS

SIZE = 900_000  # characters; a job file holds at most a mebibyte
ALMOST = {
    "beginnings of API keys": "sk-",
    "API keys without a digit": "sk-abcdefghijklmnopqrstuvw_",
    "beginnings of web tokens": "eyJ-",
    "web tokens of one part": "eyJaaaaaaaaaaaaaa.",
    "web tokens of two parts": "eyJaaaaaaaaaaaaaa.eyJbbbbbbbbbbbbbb ",
    "URLs without end": "://a:b",
    "URLs of users": "://u:p@h",
    "headers of keys": "-----BEGIN PRIVATE ",
    "headers without end": "-----BEGIN A",
    "short tokens": "hf_aaaa",
    "signatures": "?sig=",
    "long signatures": "&sig=aaaaaaaaaaaaaaaa=%",
    "real tokens": "hf_aB3aB3aB3aB3aB3aB3aB3aB3,",
    "webhooks": "hooks.slack.com/services/",
    "names before keys": "token  ",
    "almost keys": "token: 0123456789abcdef0123456789abcdef0123456 ",
    "names of secrets": "A_TOKEN=",
    "names of secrets, all in one": "TOKEN_",
}
SEARCH = """
import sys
from pathlib import Path
from launcher.spec.values.problems import Problems
from launcher.spec.secrets.tokens import find, has_token, mask
from launcher.spec.values.source import read_text
text = Path(sys.argv[1]).read_text()
has_token(text), mask(text), find(text)
for shape in ("name: a # %s\\n", "name: a\\nenv: {X: '%s'}\\n"):
    read_text(shape % text, "job.yaml", Problems())
lines = "".join(f"# {text[at:at + 80]}\\n" for at in range(0, len(text), 80))
read_text(lines + "name: a\\n", "job.yaml", Problems())
"""
LOAD = """
import sys
from pathlib import Path
from launcher.errors import BadInput
from launcher.spec.read.load import load
try:
    load([sys.argv[1]], cwd=Path("/"))
except BadInput:
    pass
"""


def run(program: str, file: Path) -> None:
    subprocess.run([sys.executable, "-c", program, str(file)], check=True, timeout=HANGS)


@pytest.mark.parametrize("shape", ALMOST)
def test_a_megabyte_is_searched_at_once(tmp_path: Path, shape: str) -> None:
    part = ALMOST[shape]
    file = tmp_path / "text"
    file.write_text(part * (SIZE // len(part)))
    run(SEARCH, file)


@pytest.mark.parametrize("shape", ALMOST)
def test_a_job_that_holds_it_is_checked_at_once(tmp_path: Path, shape: str) -> None:
    part = ALMOST[shape]
    text = part * (SIZE // len(part) // 2)
    file = tmp_path / "job.yaml"
    file.write_text(f"name: a\ncommand: [echo, '{text}']\nconfig: {{a: '{text}'}}\n")
    run(LOAD, file)


def test_a_text_that_stands_for_many_is_checked_once(tmp_path: Path) -> None:
    """Aliases: one long text, named a hundred thousand times."""
    file = tmp_path / "job.yaml"
    text = "@ " * 200_000
    file.write_text(f"name: a\ncommand: [echo]\nconfig:\n  a: &a '{text}'\n  b: [{', '.join(['*a'] * 90_000)}]\n")
    run(LOAD, file)
