"""The tutorials, typed by somebody who installed the wheel, in an empty folder: every line as it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import installed
from tests.support.documented import ROOT, blocks, inline
from tests.support.modelserver import Reply, completion, serving

TUTORIALS = ("demo", "own-folder", "own-task", "recordings")
# tests/integration/monitor/test_tutorial.py types the first, tests/integration/documents/test_days.py the days
ELSEWHERE = ("monitor", "day-3", "day-4", "day-5")
# as .ci/run has the demo: as much as shows that every stage works
FEWER = {
    "login-episodes:config.tasks.count": 60,
    "login-sft:config.steps": 20,
    "login-before:config.tasks.count": 4,
    "login-after:config.tasks.count": 4,
}


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    yield from installed.stopped(installed.environment(extras=True), tmp_path / "work")


def lines(tutorial: str) -> list[str]:
    """What a reader types: first the example's files, then the blocks in order."""
    page = ROOT / "docs" / "tutorials" / f"{tutorial}.md"
    copied = [one.line for one in inline(page) if one.line.startswith("launcher init --example")]
    assert copied, f"{page} does not say where somebody without a clone has the example's files from"
    return [*dict.fromkeys(copied), *(one.line for block in blocks(page) for one in block)]


def follow(tutorial: str, work: Path, more: str = "") -> None:
    venv = installed.environment(extras=True)
    for line in lines(tutorial):
        typed = f"{line} {more}" if line.startswith("launcher submit") else line
        done = installed.run(typed, venv, work, timeout=7000)  # the test has a limit of its own
        assert done.returncode == 0, f"$ {typed}\n{done.stdout}{done.stderr}"


@pytest.mark.timeout(1200)
def test_the_first_tutorial_with_fewer_steps(work: Path) -> None:
    follow("demo", work, " ".join(f"--set {name}={value}" for name, value in FEWER.items()))
    assert "<html" in (work / "login.html").read_text()
    where = installed.run(
        "python -c 'import launcher, training; print(launcher.__file__, training.__file__)'",
        installed.environment(extras=True),
        work,
    )
    assert str(ROOT) not in where.stdout


def done_at_once(_: dict[str, Any], __: int) -> Reply:
    return Reply(completion("Action: DONE()"))


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_each_tutorial_whole(tutorial: str, work: Path) -> None:
    with serving(done_at_once, 8000):  # the served model that `recordings` asks in the end
        follow(tutorial, work)


def test_every_tutorial_is_here() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md")}
    assert pages == {*TUTORIALS, *ELSEWHERE}
    for tutorial in TUTORIALS:
        used = {name for line in lines(tutorial) for name in re.findall(r"examples/([a-z-]+)", line)}
        assert {line.split()[-1] for line in lines(tutorial) if "--example" in line} == used
