"""Desktops behind servers as the rollout uses them, and what their absence says."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from eval.actions.dialects.dsl import Dsl
from eval.agents.baselines import ScriptedAgent
from eval.config import ConfigError
from eval.config.roles import base_url
from eval.desktop import BrokenByAgent, DesktopGone, Score, SetupFailed
from eval.desktops.client.fast import DesktopClient
from eval.desktops.remote import TOKEN_VARIABLE, RemoteDesktop, Servers
from eval.desktops.server.service import Permissions
from eval.desktops.stage import ServedStage
from eval.environments import desktop
from eval.environments.desktop import FILE, NoteScene
from eval.rollout.loop import RolloutLimits, rollout
from tests.support.desktops import run
from tests.support.served import TOKEN, Served, served

SEED = 1_000_000

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    desktop.servers_of.cache_clear()


def announced(monkeypatch: pytest.MonkeyPatch, *desks: Served) -> None:
    """As the runtime tells a role that needs the role `desktop`."""
    hosts = [desk.address.removeprefix("http://") for desk in desks]
    monkeypatch.setenv("SLIPWAY_ENDPOINT_DESKTOP", ",".join(hosts))
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)


@pytest.mark.timeout(300)
def test_episodes_share_the_desktops_of_a_role(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two servers, five episodes, three at once: none is refused, and each has a clean desktop."""

    async def go() -> list[bool]:
        async with AsyncExitStack() as stack:
            announced(monkeypatch, *[await stack.enter_async_context(served()) for _ in range(2)])
            results = await rollout(
                ScriptedAgent(Dsl(4)),
                lambda: desktop.desktop({"role": "desktop"}),
                desktop.tasks(5, SEED, {}),
                out=tmp_path,
                benchmark="desktop",
                environment="desktop",
                limits=RolloutLimits(attempts=1, concurrency=3),
            )
        return [bool(result.record.success) for result in results]

    assert run(go()) == [True] * 5


def test_a_desktop_that_is_gone_is_infrastructure_and_its_server_is_free_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def go() -> None:
        async with served() as desk:
            announced(monkeypatch, desk)
            (task,) = desktop.tasks(1, SEED, {})
            for _ in range(2):
                remote = desktop.desktop({"role": "desktop"})
                assert isinstance(remote, RemoteDesktop)
                await remote.reset(task, SEED)
                os.kill(desk.session.processes["X server"], 9)
                with pytest.raises(DesktopGone):
                    await remote.step(NoteScene(SEED, "test").expected([]).action)
                await remote.close()

    run(go())


@pytest.mark.parametrize(
    ("left", "means"),
    [("", Score(0.0, False, {"file": "missing"})), ("mkfifo", None), ("ln -s /etc/passwd", None), ("mkdir", None)],
    ids=["nothing", "fifo", "link", "folder"],
)
def test_what_the_agent_left_in_place_of_the_file_scores_0(left: str, means: Score | None) -> None:
    async def go() -> None:
        async with served() as desk:
            scene = NoteScene(SEED, "test")
            client = await DesktopClient.connect(desk.address, TOKEN)
            await scene.prepare(ServedStage(client))
            home = desk.session.place.home
            (home / FILE).unlink()
            if left:
                made = await asyncio.create_subprocess_exec(*left.split(), FILE, cwd=home)
                assert await made.wait() == 0
            if means is None:
                with pytest.raises(BrokenByAgent):
                    await scene.judge(ServedStage(client), [])
            else:
                assert await scene.judge(ServedStage(client), []) == means
            await client.close()

    run(go())


def test_a_server_without_files_cannot_prepare() -> None:
    async def go() -> None:
        async with served(permissions=Permissions(files="off")) as desk:
            client = await DesktopClient.connect(desk.address, TOKEN)
            with pytest.raises(SetupFailed, match="--files home"):
                await NoteScene(SEED, "test").prepare(ServedStage(client))
            await client.close()

    run(go())


def test_what_the_job_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_ENDPOINT_DESKTOP", raising=False)
    with pytest.raises(ConfigError, match=r"no \$SLIPWAY_ENDPOINT_DESKTOP; the job's role needs `needs: \[desktop\]`"):
        desktop.desktop({"role": "desktop"})
    monkeypatch.setenv("SLIPWAY_ENDPOINT_DESKTOP", "h:1,h:2")
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=rf"needs `secrets: \[{TOKEN_VARIABLE}\]`"):
        desktop.desktop({"role": "desktop"})
    monkeypatch.setenv(TOKEN_VARIABLE, "word")
    assert Servers.of_role("desktop").addresses == ("http://h:1", "http://h:2")


def test_a_model_of_the_run_is_named_by_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_ENDPOINT_BIG_MODEL", "h:8000,h:8001")
    assert base_url("role:big-model", "agent.base_url") == "http://h:8000/v1"
    assert base_url("http://x/v1", "agent.base_url") == "http://x/v1"
    with pytest.raises(ConfigError, match=r"agent.base_url: other: no \$SLIPWAY_ENDPOINT_OTHER; .* `needs: \[other\]`"):
        base_url("role:other", "agent.base_url")
