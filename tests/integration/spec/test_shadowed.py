"""A folder of the overlay that hides a package of Slipway from the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.errors import BadInput
from launcher.spec import reference
from launcher.spec.code.shadowed import EXTEND
from tests.integration.spec.test_code import write
from tests.unit.spec.support import group

ROOT = Path(__file__).parents[3]
COPY = {path.relative_to(ROOT).as_posix(): "" for path in (ROOT / "eval").rglob("*.py")}


def said(folder: Path, names: dict[str, str], command: str) -> str:
    """The message for a job with this command and overlay; empty when it is accepted."""
    write(folder / "src", {"note.txt": "", **names})
    try:
        group(f"name: a\ncommand: {command}\ncode: src\n", folder)
    except BadInput as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("names", "command", "line"),
    [
        (
            {"training/__init__.py": "", "training/mine.py": ""},
            "[python, -m, training.tiny]",
            "job.yaml:2:23: command[2]: the overlay's `training/` hides Slipway's package `training` and has no "
            f"module `training.tiny`; allowed: another name for it, or this line in its __init__.py: {EXTEND}",
        ),
        (
            {"training.py": ""},
            "[python, -m, training.tiny]",
            "job.yaml:2:23: command[2]: the overlay's `training.py` hides Slipway's package `training` and has no "
            "module `training.tiny`; allowed: another name for it",
        ),
        (
            {"eval.py": ""},
            "[python, -m, training.sft]",
            "job.yaml:2:23: command[2]: the overlay's `eval.py` hides Slipway's package `eval`, which `training.sft` "
            "imports; allowed: another name for it",
        ),
        (
            {"eval/__init__.py": "", "eval/mine.py": ""},
            "[python, -m, training.sft]",
            "job.yaml:2:23: command[2]: the overlay's `eval/` hides Slipway's package `eval`, which `training.sft` "
            f"imports; allowed: another name for it, or this line in its __init__.py: {EXTEND}",
        ),
        (
            {"training/sft.py": ""},
            "[python, -m, training.sft]",
            "job.yaml:2:23: command[2]: the overlay's `training/` has no __init__.py, so Python takes `training.sft` "
            "from Slipway's package `training`; allowed: another name for it, or this line in its __init__.py: "
            f"{EXTEND}",
        ),
    ],
)
def test_the_command_uses_what_the_overlay_hides(
    names: dict[str, str], command: str, line: str, tmp_path: Path
) -> None:
    assert said(tmp_path, names, command) == line


@pytest.mark.parametrize(
    "command",
    [
        "[torchrun, --nproc-per-node, '2', -m, training.data.pack]",
        "[sh, -c, 'set -e; exec python -m  training.tiny --out x']",
        "[accelerate, launch, -m, training.tiny]",
        "[python, '-mtraining.tiny']",
    ],
)
def test_every_way_to_start_a_module_counts(command: str, tmp_path: Path) -> None:
    assert "hides Slipway's package `training`" in said(tmp_path, {"training/__init__.py": ""}, command)


@pytest.mark.parametrize(
    ("names", "command"),
    [
        ({"training/__init__.py": "", "training/tiny.py": ""}, "[python, -m, training.tiny]"),  # their own
        ({"training/__init__.py": "", "training/tiny/__main__.py": ""}, "[python, -m, training.tiny]"),
        ({"training/__init__.py": EXTEND, "training/mine.py": ""}, "[python, -m, training.tiny]"),
        ({"training/__init__.py": EXTEND, "eval/__init__.py": EXTEND}, "[python, -m, training.tiny]"),
        ({"training/notes.md": "", "eval/tasks.json": ""}, "[python, -m, training.tiny]"),  # no package
        ({"training/helper.py": ""}, "[python, -m, training.tiny]"),  # without __init__.py it hides nothing
        ({"training/__init__.py": "", "eval.py": ""}, "[python, eval.py]"),
        ({"training/__init__.py": ""}, "[python, -m, other.training.tiny]"),
        ({"training/__init__.py": ""}, "[sh, -c, 'cd ours && python -m training.tiny']"),  # another folder comes first
        ({"src/training/__init__.py": ""}, "[python, -m, training.tiny]"),
        (COPY, "[python, -m, training.tiny]"),  # a whole copy
    ],
)
def test_nothing_is_hidden(names: dict[str, str], command: str, tmp_path: Path) -> None:
    assert said(tmp_path, names, command) == ""


def test_every_role_and_every_variant_is_looked_at(tmp_path: Path) -> None:
    write(tmp_path / "src", {"training/__init__.py": ""})
    text = """name: a
code: src
roles:
  agent: {leader: true, command: [python, agent.py]}
  trainer: {command: [python, -m, training.tiny]}
"""
    with pytest.raises(BadInput, match=r"^job\.yaml:5:35: roles\.trainer\.command\[2\]: the overlay's `training/`"):
        group(text, tmp_path)
    varied = "name: a\ncode: src\nmatrix:\n  command:\n  - [python, mine.py]\n  - [python, -m, training.tiny]\n"
    with pytest.raises(BadInput, match=r"^job\.yaml:6:5: command\[2\]: the overlay's `training/`"):
        group(varied, tmp_path)


def test_render_exits_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, {"src/training/__init__.py": ""})
    (tmp_path / "job.yaml").write_text("name: a\ncommand: [python, -m, training.tiny]\ncode: src\n")
    monkeypatch.chdir(tmp_path)
    assert main(["render", "job.yaml", "--store", f"file://{tmp_path}/store"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("launcher render: job.yaml:2:23: command[2]: the overlay's `training/` hides")
    assert error.count("\n") == 1


def test_the_job_reference_shows_the_line() -> None:
    assert EXTEND in reference.page()


def test_the_line_that_the_message_offers_replaces_one_module_and_keeps_the_rest(tmp_path: Path) -> None:
    write(tmp_path, {"training/__init__.py": EXTEND, "training/tiny.py": ""})
    ask = (
        "from importlib.util import find_spec; print(find_spec('training.tiny').origin, find_spec('training.sft').name)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", ask],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},  # as the runtime sets it for a command
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == f"{tmp_path}/training/tiny.py training.sft\n"
