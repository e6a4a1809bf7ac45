"""Tasks of OSWorld's format on desktops behind servers, and what an agent does to spoil the judging."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from eval.benchmarks.osworld import environment
from eval.desktop import Score
from eval.desktops.remote import TOKEN_VARIABLE, RemoteDesktop
from eval.environments.desktop import servers_of
from tests.integration.osworld.playing import need_judge, opened, options
from tests.support.osworld_tasks import DONE, OS, serving, text, written
from tests.support.served import TOKEN, served

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]
BY_NAME = {task.name: task for task in OS}


@pytest.mark.parametrize("name", ["os/append-line", "os/shout", "os/sum-shown"])
def test_the_oracle_solves_tasks_on_desktops_behind_servers(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Set-up, actions and judge come through the one server, with its token."""
    need_judge()
    task = replace(BY_NAME[name], apps=("gimp",))  # which is not here: what counts are the programs there

    async def play(folder: Path) -> Score:
        async with served() as desk:
            monkeypatch.setenv("SLIPWAY_ENDPOINT_DESKTOP", desk.address.removeprefix("http://"))
            monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
            chosen = options(folder, role="desktop")
            desktop = environment.desktop(chosen)
            assert isinstance(desktop, RemoteDesktop)
            try:
                (one,) = environment.tasks(1, 0, chosen)
                await desktop.reset(one, one.seed)
                for action in (*task.oracle, DONE):
                    await desktop.step(action)
                return await desktop.score()
            finally:
                await desktop.close()

    servers_of.cache_clear()
    with serving(tmp_path / "files", [task]) as address:
        score = asyncio.run(play(written(tmp_path / "tasks", [task], address)))
    assert (score.value, score.detail["evaluators"]) == (1.0, "desktop-env 1.0.2")


@pytest.mark.parametrize(
    "trap",
    [
        "rm plan.txt; mkfifo plan.txt\n",
        "rm plan.txt; ln -s /etc/hostname plan.txt\n",
        "rm plan.txt; mkdir plan.txt\n",
        "truncate -s 40G plan.txt\n",
        "rm plan.txt\n",
    ],
    ids=["fifo", "link", "folder", "huge", "gone"],
)
def test_a_trap_in_the_place_of_the_file_that_is_judged_is_a_zero(trap: str, tmp_path: Path) -> None:
    """And no infrastructure error, by which an agent could have its episode run again."""
    need_judge()
    own = BY_NAME["os/append-line"]
    file = {"type": "vm_file", "path": "/home/user/plan.txt", "dest": "plan.txt"}
    config = [*BY_NAME["os/either-name"].config]
    evaluator = {**own.evaluator, "result": file}
    task = type(own)(own.name, own.instruction, config, evaluator, [], own.files)

    async def play(folder: Path) -> float:
        from eval.desktop import BrokenByAgent

        async with opened(folder) as (desktop, one):
            await desktop.reset(one, one.seed)
            for action in (text(trap), text("touch done\n"), DONE):
                await desktop.step(action)
            while "done" not in await desktop.stage.list_files(""):
                await asyncio.sleep(0.05)
            try:
                return (await desktop.score()).value
            except BrokenByAgent:  # the rollout makes 0 of it
                return 0.0

    with serving(tmp_path / "files", [task]) as address:
        assert asyncio.run(play(written(tmp_path / "tasks", [task], address))) == 0.0
