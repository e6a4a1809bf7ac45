"""`make nightly`: every nightly test is in one part, and the table names what was red."""

from __future__ import annotations

import subprocess
from itertools import product
from pathlib import Path

import pytest

from tests import nightly
from tests.support.needs import need

TESTS = """
import pytest
pytestmark = pytest.mark.nightly
def test_good(): pass
def test_bad(): assert 1 == 2
@pytest.mark.skip(reason="no GPU here")
def test_left_out(): pass
@pytest.mark.alone
def test_quiet(): pass
@pytest.fixture
def broken(): raise OSError("no disk")
@pytest.mark.cluster
def test_broken(broken): pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    marks = "\n  nightly: x\n  alone: x\n  cluster: x\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers ={marks}addopts = -p no:cacheprovider\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    return tmp_path


@pytest.mark.ci
def test_a_part_tells_what_passed_what_was_red_and_what_was_left_out(folder: Path, tmp_path: Path) -> None:
    done = {part: nightly.run(part, tmp_path, [str(folder)]) for part in nightly.PARTS}
    counts = {part: (one.passed, len(one.red), one.left_out.total()) for part, one in done.items()}
    assert counts == {
        "machine": (1, 1, 1),
        "cluster": (0, 1, 0),
        "cluster-oldest": (0, 0, 0),
        "cluster-newest": (0, 0, 0),
        "alone": (1, 0, 0),
        "cluster-alone": (0, 0, 0),
    }
    text = nightly.table(list(done.values()))
    assert "test_some.py::test_bad: assert 1 == 2" in text
    assert "test_some.py::test_broken: OSError: no disk" in text
    assert "left out (machine, 1): no GPU here" in text
    assert text.count("no tests") == 3
    assert not done["cluster-alone"].found


def test_a_part_whose_tests_can_not_be_read_is_red(folder: Path, tmp_path: Path) -> None:
    (folder / "test_some.py").write_text("import nothing_of_that_name\n")
    done = nightly.run("alone", tmp_path, [str(folder)])
    assert done.red


def test_an_interrupted_part_goes_on_with_what_has_not_passed(folder: Path, tmp_path: Path) -> None:
    (folder / "test_some.py").write_text(
        "import os, pytest\n"
        "from pathlib import Path\n"
        "pytestmark = [pytest.mark.nightly, pytest.mark.alone]\n"
        "def ran(name):\n"
        "    with Path(__file__).with_name('ran').open('a') as file: file.write(name)\n"
        "def test_a(): ran('a')\n"
        "def test_b():\n"
        "    ran('b')\n"
        "    if not Path(__file__).with_name('go').exists(): os._exit(9)\n"
        "def test_c(): ran('c')\n"
    )
    cut_off = nightly.run("alone", tmp_path / "kept", [str(folder)])
    assert (cut_off.passed, cut_off.red) == (1, ["pytest itself ended with exit code 9"])
    (folder / "go").touch()
    done = nightly.run("alone", tmp_path / "kept", [str(folder)])
    assert (done.passed, done.red) == (3, [])
    assert (folder / "ran").read_text() == "abbc"


def test_outcomes_belong_to_a_commit(tmp_path: Path) -> None:
    need("git")

    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "file").write_text("1")
    git("init", "-q")
    git("add", "file")
    git("commit", "-qm", "one")
    first = nightly.kept(tmp_path)
    assert nightly.kept(tmp_path) == first
    (tmp_path / "file").write_text("2")
    changed = nightly.kept(tmp_path)
    assert changed != first
    (changed / "left").mkdir(parents=True)
    assert not (nightly.kept(tmp_path) / "left").exists()  # the changes may be others now
    git("commit", "-qam", "two")
    assert nightly.kept(tmp_path) not in (first, changed)


def test_every_nightly_test_is_in_one_part() -> None:
    for cluster, alone in product((False, True), repeat=2):
        names = {"nightly": True, "cluster": cluster, "alone": alone}
        within = [part for part in nightly.PARTS if eval(nightly.PARTS[part].marks, {}, names)]
        assert len(within) == 1, names
