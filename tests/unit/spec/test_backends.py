"""The table of backends: who may know a backend's name, and backends of other distributions."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.spec.backends import BUILT_IN, UNKNOWN, backends, traits

ROOT = Path(__file__).resolve().parents[3]
JOB = "name: a\ncommand: [date]\nbackend: elsewhere\nelsewhere: {speed: %s}\n"


def compared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of every backend's name that something is compared with: ==, in, case."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        for part in parts:
            for leaf in part.elts if isinstance(part, ast.Tuple | ast.List | ast.Set) else [part]:
                if isinstance(leaf, ast.Constant) and leaf.value in BUILT_IN:
                    yield leaf.lineno, leaf.value


def test_the_search_sees_every_way_to_compare() -> None:
    code = 'x == "local"\n"docker" != x\nx in ("a", "local")\nmatch x:\n    case "kubernetes": pass\nx["local"]\n'
    assert list(compared(ast.parse(code))) == [(1, "local"), (2, "docker"), (3, "local"), (5, "kubernetes")]


def test_only_a_backends_own_folder_compares_with_its_name() -> None:
    strangers = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "launcher").rglob("*.py"))
        for line, name in compared(ast.parse(path.read_text()))
        if not path.is_relative_to(ROOT / "launcher" / "backends" / name)
    ]
    assert strangers == []


def test_the_built_in_backends_and_an_unknown_one() -> None:
    assert list(BUILT_IN) == ["local", "docker", "kubernetes", "lambda", "azureml"]
    assert {name: each.on_this_machine for name, each in backends().items() if name in BUILT_IN} == {
        "local": True,
        "docker": True,
        "kubernetes": False,
        "lambda": False,
        "azureml": False,
    }
    assert traits("mycloud") is UNKNOWN
    assert (UNKNOWN.bills, UNKNOWN.needs_digest, UNKNOWN.on_this_machine) == (True, True, False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(JOB % "fast")
    return tmp_path


def launcher(folder: Path, *arguments: str, path: Path | None) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "PYTHONPATH"))}
    environ |= {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    environ |= {"PYTHONPATH": str(path)} if path else {}
    command = [sys.executable, "-m", "launcher.cli", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)
