"""`python -m tests.faults` in a small repository."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.waiting import until

pytestmark = pytest.mark.ci  # a score of pytest's processes, and it watches the harness alone

ROOT: Final = Path(__file__).resolve().parents[3]
SUMS: Final = """\
def add(a, b):
    return a + b

def half(a):
    return a // 2

def name():
    return 'sums'
"""
TIERS: Final = """
from typing import NamedTuple
class Phase(NamedTuple):
    folders: tuple[str, ...]
    marks: str
    workers: int
TIERS = dict.fromkeys(("quick", "test", "ci", "cluster"), (Phase(("tests/unit", "tests/smoke"), "not nightly", 0),))
def paths(phase): return phase.folders
"""
TESTS: Final = {
    # a PYTHONPATH of its own, as tests of processes have it
    "tests/unit/test_add.py": """
import os, subprocess, sys
def test_add():
    program = "from launcher.sums import add; print(add(2, 1))"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": "/none"}, cwd="/",
                          capture_output=True, text=True)
    assert done.stdout == "3\\n"
def test_good(): pass
""",
    "tests/unit/test_half.py": "from launcher.sums import half\ndef test_half(): assert half(8) == 4\n",
    "tests/unit/test_name.py": "from launcher.sums import name\ndef test_name(): assert name().startswith('')\n",
}


def patch(old: str, new: str, tests: str) -> str:
    path = "launcher/sums.py"
    before, after = SUMS.splitlines(keepends=True), SUMS.replace(old, new).splitlines(keepends=True)
    diff = "".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"))
    return f"What: it is wrong\nArea: sums\nTests: {tests}\ndiff --git a/{path} b/{path}\n{diff}"


FAULTS: Final = {
    "by-named": patch("    return a + b", "    return a - b", "tests/unit/test_add.py::test_add"),
    "by-other": patch("    return a // 2", "    return a // 4", "tests/unit/test_add.py::test_good"),
    "by-nothing": patch("    return 'sums'", "    return 'mus?'", "tests/unit/test_add.py::test_good"),
}


GIT: Final = ("git", "-c", "user.name=a", "-c", "user.email=a@localhost")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    ours = ["__init__.py", "support/__init__.py", "support/outcomes.py"]
    ours += [f"faults/{file.name}" for file in (ROOT / "tests/faults").glob("*.py")]
    for name in ours:
        write(root, f"tests/{name}", (ROOT / "tests" / name).read_text())
    write(root, "tests/tiers.py", TIERS)
    for name, text in TESTS.items():
        write(root, name, text)
    write(root, "launcher/__init__.py", "")
    write(root, "launcher/sums.py", SUMS)
    write(root, ".gitignore", "build/\n__pycache__/\n.venv/\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*GIT, *words], cwd=root, check=True)
    for name, text in FAULTS.items():
        write(root, f"tests/faults/launcher/{name}.patch", text)
    return root


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def start(root: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults", "--tier", "quick", *words]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "GIT_"))}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # quicker
    out = subprocess.PIPE
    return subprocess.Popen(command, cwd=root, env=environment, stdout=out, stderr=subprocess.STDOUT, text=True)


def faults(root: Path, *words: str) -> tuple[int, str]:
    with start(root, *words) as running:
        text, _ = running.communicate()
    return running.returncode, text


def outcomes(root: Path) -> list[dict[str, Any]]:
    """Of faults, in the order in which they ended."""
    lines = [line for file in root.glob("build/faults/*/quick.jsonl") for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.startswith('{"fault"') and line.endswith("}")]


def test_who_notices_a_fault_also_after_an_interruption(repository: Path) -> None:
    with start(repository) as running:
        until(lambda: outcomes(repository) or running.poll() is not None)
        running.kill()
    # the line that it was writing, and the fault that it had applied
    file = next(repository.glob("build/faults/*/quick.jsonl"))
    with file.open("a") as lines:
        lines.write('{"fault": "launcher/by-oth\n')
    write(repository, "build/faults/tree/launcher/sums.py", "")

    code, text = faults(repository)
    assert code == 0, text
    assert "quick: 2 of 3 noticed, 1 by a named test, 1 by another; nothing: 1" in text
    rows = outcomes(repository)
    assert {row["fault"]: (row["how"], row["test"]) for row in rows} == {
        "launcher/by-named": ("named", "tests/unit/test_add.py::test_add"),
        "launcher/by-other": ("other", "tests/unit/test_half.py::test_half"),
        "launcher/by-nothing": ("nothing", ""),
    }
    assert [row["fault"] for row in rows].count("launcher/by-named") == 1
    assert faults(repository, "--table") == (0, text[text.index("\nfault ") :])
    assert (repository / "launcher/sums.py").read_text() == SUMS


def test_only_the_named_tests_and_then_the_tier(repository: Path) -> None:
    code, text = faults(repository, "--named-only", "by-other")
    assert code == 0, text
    assert "no named: 1" in text
    assert "1 of 1 noticed" in faults(repository, "by-other")[1]


def test_an_error_is_no_fault_that_was_noticed(repository: Path) -> None:
    write(repository, "tests/unit/test_half.py", "def test_half(): assert False\n")
    subprocess.run([*GIT, "commit", "-qam", "a red test"], cwd=repository, check=True)
    patches = {
        "by-named": FAULTS["by-named"].replace("test_add.py::test_add", "test_half.py::test_half"),
        "by-nothing": FAULTS["by-nothing"].replace("return 'sums'", "return 'sum'"),
        "no-syntax": patch("    return a + b", "    return a - ", "tests/unit/test_add.py::test_add"),
        "no-import": patch("def name():", "def title():", "tests/unit/test_name.py"),
        "no-test": FAULTS["by-named"].replace("test_add.py::test_add", "test_add.py::test_gone"),
    }
    for name, text in patches.items():
        write(repository, f"tests/faults/launcher/{name}.patch", text)
    code, text = faults(repository)
    assert code == 1
    assert {row["how"] for row in outcomes(repository)} == {"error"}
    assert "by-named.patch: without the fault, too, tests/unit/test_half.py::test_half fails" in text
    assert "by-nothing.patch: it does not apply to launcher/sums.py" in text
    assert "by-other: error without the fault, too, tests/unit/test_half.py::test_half fails" in text
    assert "no-syntax.patch: launcher/sums.py is no Python" in text
    assert "no-import.patch: no test ran" in text
    assert "no-test.patch: tests/unit/test_add.py has no test test_gone" in text
