"""examples/python: the script and the notebook run as they stand, in a folder with a profile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documented import ROOT
from tests.support.verbs import launcher

SCRIPT = ROOT / "examples" / "python" / "sweep.py"
NOTEBOOK = ROOT / "examples" / "python" / "sweep.ipynb"
# runs the cells of a notebook as its kernel does: from the top, in one namespace, each one's last value printed
KERNEL = """
import ast, json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, cell["id"], "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)
            if value is not None:
                print(value)
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state}\n")
    yield tmp_path
    launcher(tmp_path, "local", "stop")


def sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(folder, str(SCRIPT), *arguments)


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "XDG_"))}
    environment = {**kept, "HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


def test_the_sweep_finds_the_best_rate_and_copies_its_results(project: Path) -> None:
    first = sweep(project, "--rates", "0.1", "0.03")
    assert first.returncode == 0, first.stderr
    rows = first.stdout.splitlines()
    assert [row.split()[:2] for row in rows[1:3]] == [["0.03", "0.1000"], ["0.1", "0.1049"]]
    (summary,) = project.glob("best/*/outputs/results/summary.json")
    assert rows[1].split()[2] in str(summary)

    second = sweep(project, "--rates", "0.1", "0.03")
    assert second.returncode == 0, second.stderr
    assert len(list(project.glob("store/runs/*"))) == 2  # the same runs
    assert not list(project.glob("store/runs/*/attempts/2"))


def test_a_failed_run_shows_its_last_lines(project: Path, tmp_path: Path) -> None:
    broken = SCRIPT.read_text().replace("import json, os, pathlib\n", "raise SystemExit('no data')\n", 1)
    copy = tmp_path / "broken.py"
    copy.write_text(broken)
    done = subprocess.run(
        [sys.executable, str(copy), "--rates", "0.1"],
        cwd=project,
        env={**os.environ, "HOME": str(project / "home"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1
    assert "no data" in done.stderr


def test_the_notebook_runs_from_the_top_and_again_computes_nothing(project: Path) -> None:
    for _ in range(2):
        done = python(project, "-c", KERNEL, str(NOTEBOOK))
        assert done.returncode == 0, done.stderr
        rows = [line.split() for line in done.stdout.splitlines()]
        table = [row[:2] for row in rows if len(row) == 3 and row[2].startswith("notebook-sweep-")]
        assert table == [["0.03", "0.1000"], ["0.01", "0.1004"], ["0.1", "0.1049"]]
        assert rows[-1][1:] == ["files", "in", "best/"]
    assert len(list(project.glob("store/runs/notebook-sweep-*"))) == 3
    assert not list(project.glob("store/runs/*/attempts/2"))


def test_the_notebook_is_one_and_holds_no_output() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
