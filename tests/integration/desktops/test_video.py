"""A video of an episode: what it shows, that it ends with the episode, and what stands in its way."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from eval.config import ConfigError
from eval.desktop import Score, SetupFailed
from eval.desktops.keeping import kernel
from eval.desktops.live import LiveDesktop
from eval.desktops.remote import RemoteDesktop, Servers
from eval.desktops.server import service
from eval.desktops.session import DesktopOptions
from eval.environments import desktop
from eval.environments.desktop import NoteScene
from tests.support.needs import need
from tests.support.served import TOKEN, served
from tests.support.waiting import until

SEED = 1_000_000

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _recorder() -> None:
    need("ffmpeg")


def frames(file: Path, folder: Path) -> list[Image.Image]:
    """The pictures of a video."""
    folder.mkdir()
    subprocess.run(["ffmpeg", "-loglevel", "error", "-i", file, folder / "%06d.png"], check=True)
    return [Image.open(path).convert("RGB") for path in sorted(folder.iterdir())]


def apart(one: Image.Image, other: Image.Image) -> float:
    """The mean difference of two pictures, 0 to 255."""
    return sum(ImageStat.Stat(ImageChops.difference(one, other)).mean) / 3


def recorder(live: LiveDesktop) -> int | None:
    """The process that records."""
    assert live._session is not None
    for pid in kernel.children(live._session.processes["keeper"]):
        if b"x11grab" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return None


def episode(videos: Path, killed: bool = False) -> Image.Image:
    """What the desktop showed at the end of an episode."""

    async def go() -> Image.Image:
        live = desktop.desktop({"video": str(videos), "screen": [801, 601]})
        assert isinstance(live, LiveDesktop)
        (task,) = desktop.tasks(1, SEED, {})
        try:
            await live.reset(task, SEED)
            file = videos / f"{task.task_id}-{SEED}.mp4"
            for index in range(3):
                shown = await live.step(NoteScene(SEED, "test").expected([None] * index).action)  # type: ignore[list-item]
                await asyncio.sleep(2.5 if killed else 0.5)
            await asyncio.to_thread(until, lambda: file.exists() and file.stat().st_size > 0)
            pid = recorder(live)
            assert pid is not None
            if killed:
                os.kill(pid, signal.SIGKILL)
                await live.step(NoteScene(SEED, "test").expected([]).action)
            assert (await live.score()).success
        finally:
            await live.close()
        assert not Path(f"/proc/{pid}").exists()
        return shown.image.convert("RGB")

    return asyncio.run(go())


def test_it_shows_the_episode_from_its_begin_to_its_end(tmp_path: Path) -> None:
    last = episode(tmp_path / "videos")
    (file,) = (tmp_path / "videos").iterdir()
    pictures = frames(file, tmp_path / "frames")
    assert pictures[0].size == (800, 600)
    assert len(pictures) >= 5
    same = last.crop((0, 0, 800, 600))
    # the picture at the end, but for what the encoding loses; the first one lacks at least what was typed
    assert apart(pictures[-1], same) < 1.0
    assert apart(pictures[0], same) - apart(pictures[-1], same) > 0.05


def test_a_recorder_that_was_killed_leaves_a_video_and_the_episode_alone(tmp_path: Path) -> None:
    episode(tmp_path / "videos", killed=True)
    (file,) = (tmp_path / "videos").iterdir()
    assert frames(file, tmp_path / "frames")


def test_a_desktop_behind_a_server_is_recorded_there(tmp_path: Path) -> None:
    videos = tmp_path / "videos"

    async def go() -> tuple[Image.Image, Score]:
        async with served(DesktopOptions(screen=(800, 600))) as desk:
            servers = Servers([desk.address], TOKEN)
            remote = RemoteDesktop(lambda task, seed: NoteScene(seed, "test"), servers, tree=False, video=videos)
            (task,) = desktop.tasks(1, SEED, {})
            try:
                await remote.reset(task, SEED)
                for index in range(3):
                    shown = await remote.step(NoteScene(SEED, "test").expected([None] * index).action)  # type: ignore[list-item]
                    await asyncio.sleep(0.5)
                score = await remote.score()
            finally:
                await remote.close()
            return shown.image.convert("RGB"), score

    last, score = asyncio.run(go())
    assert score.success
    (file,) = videos.iterdir()
    assert file.name.endswith(f"-{SEED}.mp4")
    pictures = frames(file, tmp_path / "frames")
    assert apart(pictures[-1], last) < 1.0
    assert apart(pictures[0], last) - apart(pictures[-1], last) > 0.05


def test_a_server_without_a_recorder_is_a_set_up_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "missing_recorder", lambda: "ffmpeg is not installed: apt-get install ffmpeg")

    async def go() -> None:
        async with served(DesktopOptions(screen=(800, 600))) as desk:
            remote = RemoteDesktop(
                lambda task, seed: NoteScene(seed, "test"), Servers([desk.address], TOKEN), video=tmp_path
            )
            (task,) = desktop.tasks(1, SEED, {})
            try:
                with pytest.raises(SetupFailed, match=r"video: .*ffmpeg is not installed: apt-get install ffmpeg"):
                    await remote.reset(task, SEED)
            finally:
                await remote.close()

    asyncio.run(go())


def test_what_stands_in_its_way_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()

    async def go() -> None:
        live = desktop.desktop({"video": str(tmp_path / "file" / "videos")})
        (task,) = desktop.tasks(1, SEED, {})
        try:
            with pytest.raises(SetupFailed, match=r"video: .*file/videos: Not a directory"):
                await live.reset(task, SEED)
        finally:
            await live.close()

    asyncio.run(go())
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigError, match=r"options.video: ffmpeg is not installed: apt-get install ffmpeg"):
        desktop.video_folder("here")
