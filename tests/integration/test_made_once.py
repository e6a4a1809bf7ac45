"""What tests share is made once, wherever processes end, and anew when a source that decides it has changed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
# Tells that it runs, waits for the file `go`, asks for the folder, tells it, and keeps it until its input ends
PROGRAM = """
import runpy, sys
from pathlib import Path
from tests.support import made_once, waiting
root = made_once.ROOT = Path(sys.argv[1])
(root / f"running-{sys.argv[2]}").touch()
waiting.until((root / sys.argv[3]).exists)
print(made_once.made_once("thing", runpy.run_path(str(root / "tests/maker.py"))["make"], root, "v1"), flush=True)
sys.stdin.read()
"""
MAKER = """
import os
from tests.support import waiting
WORLD = "tests.worlds:World"

def make(folder, root, version):
    (folder / f"begun-{os.getpid()}").touch()
    with (root / "log").open("a") as log:
        log.write(f"{folder.name}\\n")
    waiting.until((root / "finish").exists)
    (folder / "whole").write_text(version)
"""
SOURCES = ["training/a.py", "eval/inner/b.py", "tests/maker.py", "tests/support/waiting.py", "tests/worlds.py"]
OTHERS = ["launcher/c.py", "tests/other.py", "training/a.txt"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a few sources, which are older than any process."""
    for name in (*SOURCES, *OTHERS):
        change(tmp_path / name, MAKER if name == "tests/maker.py" else "")
    (tmp_path / "go").touch()
    return tmp_path


def change(file: Path, text: str, age: float = 100.0) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, times=(time.time() - age,) * 2)


def begin(root: Path, name: str = "one", go: str = "go") -> subprocess.Popen[str]:
    environment = {**os.environ, "SLIPWAY_TEST_CACHE": str(root / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, str(root), name, go]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def folder(root: Path) -> Path:
    """The folder that a process gets."""
    with begin(root) as process:
        said, _ = process.communicate()
    assert process.returncode == 0
    return Path(said.strip())


def log(root: Path) -> list[str]:
    return (root / "log").read_text().splitlines() if (root / "log").exists() else []


def test_one_of_several_processes_makes_it_and_the_others_wait(root: Path) -> None:
    processes = [begin(root, str(number)) for number in range(4)]
    until(lambda: log(root) and all((root / f"running-{number}").exists() for number in range(4)))
    (root / "finish").touch()
    said = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    (place,) = (Path(each.strip()) for each in said)
    assert (place / "whole").read_text() == "v1"
    assert place.is_relative_to(root / "cache" / f"slipway-made-{os.getuid()}" / "thing")
    assert log(root) == [place.name]


def test_what_a_killed_process_left_does_not_count(root: Path) -> None:
    first = begin(root)
    until(lambda: log(root))
    second = begin(root)  # waits for the first
    first.kill()
    first.communicate()
    until(lambda: len(log(root)) == 2)
    (root / "finish").touch()
    place = Path(second.communicate()[0].strip())
    assert sorted(path.name for path in place.iterdir()) == [f"begun-{second.pid}", "whole"]
    assert log(root) == [place.name] * 2


def test_it_is_made_anew_when_a_source_changes_and_two_are_kept(root: Path) -> None:
    (root / "finish").touch()
    places = [folder(root)]
    for name in OTHERS:
        change(root / name, "# changed")
        assert folder(root) == places[0]
    assert len(log(root)) == 1
    for name in SOURCES:
        change(root / name, f"{(root / name).read_text()}# changed")
        places.append(folder(root))
        assert sorted(path for path in places[0].parent.iterdir() if path.is_dir()) == sorted(places[-2:])
    assert len(set(places)) == len(log(root)) == 1 + len(SOURCES)
    change(root / SOURCES[-1], "")
    assert folder(root) == places[-2]
    assert len(log(root)) == 1 + len(SOURCES)


def test_what_a_process_uses_is_not_removed(root: Path) -> None:
    (root / "finish").touch()
    with begin(root) as user:
        assert user.stdout is not None
        used = Path(user.stdout.readline().strip())
        later = []
        for number in range(3):
            change(root / SOURCES[0], f"# {number}")
            later.append(folder(root))
        assert [place.exists() for place in (used, *later)] == [True, False, True, True]
        user.communicate()
    change(root / SOURCES[0], "# 3")
    later.append(folder(root))
    assert [place.exists() for place in (used, *later)] == [False, False, False, True, True]


def test_a_process_that_began_before_a_change_makes_it_for_itself(root: Path) -> None:
    """It may have imported what the source was before."""
    (root / "finish").touch()
    with begin(root, go="later") as process:
        until((root / "running-one").exists)
        change(root / SOURCES[0], "# changed", age=-100.0)
        (root / "later").touch()
        old = Path(process.communicate()[0].strip())
    assert process.returncode == 0
    change(root / SOURCES[0], "# changed")
    assert folder(root) != old
    assert len(log(root)) == 2
