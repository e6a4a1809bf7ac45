"""The environment `desktop`: tasks on real desktops through the one rollout."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.agents.base import Decision
from eval.agents.baselines import ScriptedAgent
from eval.agents.computer import Computer
from eval.config import ConfigError
from eval.desktop import ActionRefused, DesktopGone, DesktopTimeout, InfraError, Task
from eval.desktops.live import LiveDesktop
from eval.environments import desktop
from eval.environments.desktop import FILE, NoteScene
from eval.rollout.loop import RolloutLimits, rollout
from tests.support.documented import ROOT, blocks
from tests.support.served import OverServer

SEED = 1_000_000

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(params=["display", "server"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment acts over a connection to the display, and over our server and client."""
    if request.param == "server":
        served = functools.partial(LiveDesktop, connect=OverServer.connect)
        monkeypatch.setattr("eval.desktops.live.LiveDesktop", served)


async def begun(seed: int = SEED) -> LiveDesktop:
    (task,) = desktop.tasks(1, seed, {})
    live = desktop.desktop({})
    assert isinstance(live, LiveDesktop)
    await live.reset(task, seed)
    return live


def play(actions: list[Action]) -> tuple[float, bool]:
    """The score after some actions."""

    async def go() -> tuple[float, bool]:
        live = await begun()
        try:
            for action in actions:
                await live.step(action)
            score = await live.score()
        finally:
            await live.close()
        return score.value, score.success

    return asyncio.run(go())


def expert(seed: int = SEED) -> list[Action]:
    note, done = NoteScene(seed, "test"), []
    while not done or done[-1].type is not ActionType.DONE:
        done.append(note.expected(done).action)
    return done


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("way")
def test_the_expert_solves_tasks_through_the_rollout(tmp_path: Path) -> None:
    results = asyncio.run(
        rollout(
            ScriptedAgent(Dsl(4)),
            lambda: desktop.desktop({}),
            desktop.tasks(3, SEED, {}),
            out=tmp_path,
            benchmark="desktop",
            environment="desktop",
            limits=RolloutLimits(attempts=1, concurrency=2),
        )
    )
    assert [result.record.success for result in results] == [True] * 3
    assert all(result.record.correct == result.record.judged == 4 for result in results)


@pytest.mark.usefixtures("way")
def test_another_way_to_the_same_file_is_solved() -> None:
    """The line at the end, without a line break after it, written in two parts."""
    line = NoteScene(SEED, "test").line
    ways = [
        Action(ActionType.HOTKEY, keys=("ctrl", "end")),
        Action(ActionType.TYPE, text=line[:3]),
        Action(ActionType.TYPE, text=line[3:]),
        Action(ActionType.HOTKEY, keys=("ctrl", "s")),
    ]
    assert play(ways) == (1.0, True)


@pytest.mark.parametrize(
    "actions",
    [
        [],
        [Action(ActionType.FAIL)],
        [expert()[1], expert()[2]],  # at the beginning
        expert()[:2],  # not saved
        [*expert()[:2], expert()[1], expert()[2]],  # twice
    ],
    ids=["nothing", "fail", "elsewhere", "not saved", "twice"],
)
def test_what_is_not_the_task_scores_0(actions: list[Action]) -> None:
    assert play(actions) == (0.0, False)


@pytest.mark.usefixtures("way")
def test_each_reset_is_clean() -> None:
    async def go() -> tuple[str, str]:
        live = await begun()
        try:
            for action in expert():
                await live.step(action)
            (task,) = desktop.tasks(1, SEED + 1, {})
            await live.reset(task, task.seed)
            assert live._session is not None
            text = (live._session.place.home / FILE).read_text()
            score = await live.score()
        finally:
            await live.close()
        return text, str(score.success)

    assert asyncio.run(go()) == ("".join(f"{line}\n" for line in NoteScene(SEED + 1, "test").before), "False")


@pytest.mark.usefixtures("way")
def test_a_program_that_is_not_there_is_refused_and_the_episode_goes_on() -> None:
    async def go() -> None:
        live = await begun()
        try:
            with pytest.raises(ActionRefused, match="no-such-program"):
                await live.step(Action(ActionType.OPEN_APP, app_name="no-such-program"))
            for action in expert():
                await live.step(action)
            assert (await live.score()).success
        finally:
            await live.close()

    asyncio.run(go())


@pytest.mark.usefixtures("way")
def test_a_killed_x_server_is_infrastructure() -> None:
    async def go() -> None:
        live = await begun()
        try:
            assert live._session is not None
            os.kill(live._session.processes["X server"], signal.SIGKILL)
            with pytest.raises(DesktopGone):
                await live.step(expert()[1])
        finally:
            await live.close()

    asyncio.run(go())


def typed(page: str) -> list[str]:
    """The commands of a page that are about desktops."""
    return [each.line for block in blocks(ROOT / page) for each in block if block[0].line == "make dev desktop-tools"]


def test_the_readme_has_the_commands_of_the_page() -> None:
    assert typed("README.md") == typed("docs/howto/desktop.md")
    assert len(typed("README.md")) == 3


@pytest.mark.timeout(300)
def test_the_page_is_typed_as_it_stands(tmp_path: Path) -> None:
    """docs/howto/desktop.md, but for the installation, which is there."""
    lines = typed("docs/howto/desktop.md")
    assert lines[0] == "make dev desktop-tools"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for line in lines[1:]:
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    summary = json.loads((tmp_path / "results/summary.json").read_text())
    assert [each["value"] for each in summary if each["metric"] == "success"] == [1.0]
    assert (tmp_path / "replay.html").read_text().count("<figure") >= 4


def test_what_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    desktop.check_here.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("eval.desktops.keeping.screen.PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"Xvfb is not installed: apt-get install xvfb; .*install mousepad"):
        desktop.desktop({})
    desktop.check_here.cache_clear()


@pytest.mark.usefixtures("way")
def test_an_action_that_takes_too_long_is_told_while_the_x_server_answers_and_infra_when_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """5,000 different characters that the keyboard has no key for, with no time for their number."""
    monkeypatch.setattr("eval.agents.computer.asks", lambda action: 0.0)
    monkeypatch.setattr("eval.desktops.computer.ANSWERS_S", 10.0)
    text = "".join(chr(0x4E00 + number) for number in range(5000))

    async def go() -> None:
        live = await begun()
        try:
            seen = await live._observed(await live._computer.look())  # type: ignore[union-attr]
            computer = Computer(live, Task("note", ""), seen, max_steps=9, step_timeout=1.0)
            await computer.answer(Decision("", Action(ActionType.TYPE, text=text)))
            assert "took too long" in (computer.steps[-1].refused or "")
            assert computer.observation is not seen
            computer._step_timeout = 60.0
            await computer.answer(Decision("", Action(ActionType.WAIT, duration=0.1)))
            assert computer.steps[-1].refused is None
            assert live._session is not None
            os.kill(live._session.processes["X server"], signal.SIGSTOP)
            computer._step_timeout = 1.0
            with pytest.raises(DesktopTimeout):
                await computer.answer(Decision("", Action(ActionType.CLICK, x=0.5, y=0.5)))
            assert computer.ended.is_set()
            os.kill(live._session.processes["X server"], signal.SIGCONT)
        finally:
            with contextlib.suppress(InfraError):
                await live.close()

    asyncio.run(go())
