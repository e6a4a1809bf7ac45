"""Tasks of ours in OSWorld's format on real desktops, judged by the public package as it is published."""

from __future__ import annotations

import asyncio
import io
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval.desktop import BrokenByAgent, Score
from eval.desktops.live import LiveDesktop
from tests.integration.osworld.playing import JUDGE, need_judge, opened
from tests.support.documented import ROOT
from tests.support.needs import need
from tests.support.osworld_tasks import DONE, FAIL, OFFICE, OS, OwnTask, serving, written

pytestmark = pytest.mark.timeout(600)
IN_CI = [task for task in OS if task.name in ("os/append-line", "os/shout", "os/no-such-account")]
BOTH = [pytest.param(task, marks=[] if task in IN_CI else pytest.mark.nightly) for task in (*OS, *OFFICE)]


@pytest.fixture
def folder(task: OwnTask, tmp_path: Path) -> Iterator[Path]:
    """A folder with the task's file; what it downloads is served meanwhile."""
    need_judge()
    (tmp_path / "files").mkdir()
    if task in OFFICE:
        need("office")
        subprocess.run([JUDGE, ROOT / "tests/support/osworld_files.py", tmp_path / "files"], check=True)
    with serving(tmp_path / "files", [task]) as address:
        yield written(tmp_path / "tasks", [task], address)


async def written_file(desktop: LiveDesktop, path: str) -> bytes | None:
    """The file of the home, or what stands for a folder; None where nothing is, and for a document that is cut off."""
    try:
        content = await desktop.stage.read_file(path)
    except FileNotFoundError:
        return None
    except BrokenByAgent:  # a folder
        return b"folder"
    return None if path.endswith("x") and not zipfile.is_zipfile(io.BytesIO(content)) else content


async def solved(folder: Path, task: OwnTask) -> Score:
    async with opened(folder) as (desktop, one):
        await desktop.reset(one, one.seed)
        before = await written_file(desktop, task.saves) if task.saves else None
        for action in task.oracle:
            await desktop.step(action)
        while task.saves and await written_file(desktop, task.saves) in (None, before):
            await asyncio.sleep(0.05)
        if not task.infeasible:
            await desktop.step(DONE)
        return await desktop.score()


async def idle(folder: Path) -> Score:
    async with opened(folder) as (desktop, one):
        await desktop.reset(one, one.seed)
        await desktop.step(DONE)
        return await desktop.score()


@pytest.mark.parametrize("task", BOTH, ids=lambda task: task.name)
def test_the_oracle_solves_it_and_doing_nothing_does_not(task: OwnTask, folder: Path) -> None:
    score = asyncio.run(solved(folder, task))
    assert (score.value, score.success) == (1.0, True)
    assert task.infeasible or score.detail["evaluators"] == "desktop-env 1.0.2"
    score = asyncio.run(idle(folder))
    assert (score.value, score.success) == (0.0, False)


@pytest.mark.parametrize("task", OS[:1], ids=lambda task: task.name)
def test_who_gives_up_what_can_be_done_gets_nothing(task: OwnTask, folder: Path) -> None:
    async def play() -> Score:
        async with opened(folder) as (desktop, one):
            await desktop.reset(one, one.seed)
            for action in [*task.oracle, FAIL]:
                await desktop.step(action)
            return await desktop.score()

    score = asyncio.run(play())
    assert (score.value, score.success) == (0.0, False)
