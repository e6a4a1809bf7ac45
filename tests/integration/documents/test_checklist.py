"""unverified.md: each line says how to close it, by commands that exist; tools/verify-gpu runs those of one card."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documented import ROOT
from tests.support.needs import marked
from tools import verify_gpu

TEXT = verify_gpu.PAGE.read_text(encoding="utf-8")
ROWS = [re.split(r"(?<!\\) \| ", row.strip("| ")) for row in re.findall(r"^\| [GCM]\d+ \|.*$", TEXT, re.MULTILINE)]
OPEN = {row[0]: row for row in ROWS if len(row) == 3}
CLOSING = {row[0]: row for row in ROWS if len(row) > 3}
SMI = """#!/bin/sh
[ "$2" = --format=csv,noheader,nounits ] || { echo "stand-in: $*" >&2; exit 9; }
echo "NVIDIA A10G, 23028, 580.65.06"
"""
PAGE = """### To close them

| | command | needs | minutes | what it prints |
|---|---|---|---|---|
| G1 | `WORD=sum python -c "import os; print(os.environ['WORD'], 12.0)"` | 1 card, 24 GB | 1 | `sum 12.0` |
| G2 | `python -c "print('sum')"` | 1 card | 1 | `sum 12.0` |
| G3 | `sh -c "echo broken; exit 3"` | 1 card | 1 | `broken` |
| G4 | `no-such-program` | 1 card | 1 | `x` |
| G5 | `sh -c "sleep 600 & wait"` | 1 card | .01 | `x` |
| G6 | `true` | 1 card, 80 GB, a key of yours | 1 | `x` |
| G7 | `true` | 1 card | 600 | `x` |
"""


def test_every_open_line_says_how_to_close_it() -> None:
    assert len(OPEN) > 60
    assert list(OPEN) == list(CLOSING)
    for name, row in CLOSING.items():
        assert len(row) == (5 if name.startswith("G") else 6), name
        assert all(cell.strip() for cell in row), name


@pytest.mark.parametrize("name", CLOSING)
def test_its_commands_name_what_exists(name: str) -> None:
    """Modules, files and folders of this repository. Verbs and options: test_shown.py reads every document."""
    for command in re.findall(r"`([^`]+)`", CLOSING[name][1]):
        words = shlex.split(command)
        for before, word in zip(["", *words], words, strict=False):
            if before == "-m" and word not in ("", "smoke"):
                path = ROOT / word.replace(".", "/")
                assert path.is_dir() or path.with_suffix(".py").is_file(), word
            path_of_ours = re.fullmatch(r"(?:examples|k8s|tests|images|tools)/[\w./-]+", word.rpartition("=")[2])
            if path_of_ours and "BACKEND" not in word:
                assert (ROOT / path_of_ours[0]).exists(), word


def test_the_lines_for_a_card_are_read_and_each_names_a_text() -> None:
    known = verify_gpu.lines(TEXT)
    assert [line.name for line in known] == [name for name in CLOSING if name.startswith("G")]
    card = [verify_gpu.Card("H200", 141.0, "580")]
    for line in known:
        only_packages = all(re.fullmatch(r"1 card|\d+ GB|`[\w+-]+`", need) for need in line.needs.split(", "))
        assert not only_packages or line.texts, line.name
        verify_gpu.lacks(line, card)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(verify_gpu, "PAGE", page)
    return program


@marked("git")
def test_with_a_card_the_lines_are_run_and_the_table_is_dated(
    stand_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.md"
    assert verify_gpu.main(["--out", str(out)]) == 1
    rows = {row[2:4]: row for row in out.read_text(encoding="utf-8").splitlines() if row.startswith("| G")}
    assert "| shown |" in rows["G1"]
    assert "did not print `sum 12.0`; last line: sum" in rows["G2"]
    assert "exit code 3; last line: broken" in rows["G3"]
    assert "No such file" in rows["G4"]
    assert "did not end in 1 s" in rows["G5"]
    assert "needs a key of yours, 80 GB" in rows["G6"]
    assert "may take 600 minutes" in rows["G7"]
    assert re.match(
        r"# Lines for one card, \d{4}-\d\d-\d\d \d\d:\d\d UTC\n\n- NVIDIA A10G, 24 GB, driver", out.read_text()
    )
    assert capsys.readouterr().out.endswith(f"the table: {out}\n")
    assert verify_gpu.main(["--out", str(out), "G1"]) == 0


def test_a_dry_run_runs_and_writes_nothing(stand_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.md"
    assert verify_gpu.main(["--dry-run", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "G1   would run: WORD=sum python -c" in said
    assert "G6   not run: needs" in said
    assert not list(tmp_path.glob("found*"))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'NVIDIA-SMI has failed because it could not communicate with the driver'; exit 9", "has failed because"),
        ("exit 0", "names no card"),
        ("echo 'NVIDIA A10G, [N/A], 580'", "cannot be understood"),
    ],
)
def test_a_driver_without_a_card_is_one_line(
    stand_in: Path, script: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    assert verify_gpu.main([]) == 2
    error = capsys.readouterr().err
    assert error.startswith("verify-gpu: nvidia-smi: ")
    assert said in error
    assert error.count("\n") == 1
    assert verify_gpu.main(["--dry-run"]) == 0


def test_a_word_that_is_no_line(stand_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_gpu.main(["G99"]) == 2
    assert "G99: is no line; allowed: G1, G2" in capsys.readouterr().err


def test_it_is_a_program_of_its_own() -> None:
    environ = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "tools/verify-gpu", "--dry-run", "G16"],
        cwd="/",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("G16  ")
