"""The steps of a set-up on a real desktop: what each does, and what cannot be done."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eval.benchmarks.osworld.served import served
from eval.benchmarks.osworld.steps import StepPlaces, Steps
from eval.benchmarks.osworld.tasks import SetupStep
from eval.desktop import InfraError, NotRunHere, SetupFailed
from eval.desktops.computer import LocalComputer
from eval.desktops.session import DesktopOptions, DesktopSession
from eval.desktops.stage import LocalStage
from tests.support.desktops import need_isolation

Many = Sequence[tuple[str, dict[str, Any]]]


async def done(
    tmp_path: Path, *trials: Many, judging: bool = False, internet: bool = False
) -> tuple[list[InfraError | None], dict[str, str], list[str]]:
    """Each trial's error on one desktop; the files of the home and of the cache after it; what was passed over."""
    cache = tmp_path / "cache"
    for folder in (cache, tmp_path / "downloads", tmp_path / "tasks"):
        folder.mkdir(exist_ok=True)
    places = StepPlaces(cache, tmp_path / "downloads", tmp_path / "tasks", internet)
    errors: list[InfraError | None] = []
    async with await DesktopSession.start(DesktopOptions(screen=(800, 600))) as session:
        computer = await LocalComputer.open(session)
        stage = LocalStage(session, computer)
        async with served(stage) as desktop:
            steps = Steps(desktop, places, judging=judging)
            for many in trials:
                try:
                    await steps.do([SetupStep(kind, given) for kind, given in many])
                    errors.append(None)
                except InfraError as error:
                    errors.append(error)
            await desktop.rest()
        listed = await stage.list_files("")
        here = [name for name, entry in listed.items() if entry.kind == "file" and not name.startswith(".")]
        files = {name: (await stage.read_file(name)).decode() for name in here}
        files |= {f"cache/{path.name}": path.read_text() for path in cache.iterdir()}
        files["windows"] = str(session.window_count)
        await computer.close()
    return errors, files, steps.passed_over


def test_a_set_up_of_every_kind_of_step(tmp_path: Path) -> None:
    need_isolation()
    url = "https://files.example.com/notes.txt"
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/local.txt").write_text("of the task\n")
    (tmp_path / "downloads").mkdir()
    (tmp_path / f"downloads/{uuid.uuid5(uuid.NAMESPACE_URL, url)}_notes.txt").write_text("downloaded before\n")
    steps: Many = [
        ("download", {"files": [{"url": url, "path": "/home/user/notes.txt"}]}),
        ("upload_file", {"files": [{"local_path": "local.txt", "path": "/home/user/sub/local.txt"}]}),
        (
            "execute",
            {"command": "echo {SCREEN_WIDTH_HALF} {SCREEN_HEIGHT}; echo err >&2", "shell": True, "stdout": "o"},
        ),
        ("command", {"command": ["sh", "-c", "echo x >>tries; grep -c x tries"], "until": {"stdout": "3"}}),
        ("execute", {"command": ["sh", "-c", "exit 3"]}),  # no failure there, and none here
        (
            "execute_with_verification",
            {"command": ["touch", "seen"], "verification": {"command_success": "test -f seen"}},
        ),
        ("launch", {"command": "mousepad /home/user/notes.txt"}),
        ("launch", {"command": ["galculator"]}),
        ("activate_window", {"window_name": "notes.txt"}),
        (
            "execute",
            {"command": ["python", "-c", "import pyautogui; pyautogui.write('now '); pyautogui.hotkey('ctrl', 's')"]},
        ),
        ("close_window", {"window_name": "galculator"}),
        ("sleep", {"seconds": 0.01}),
    ]
    errors, files, _ = asyncio.run(done(tmp_path, steps))
    assert errors == [None]
    assert files["notes.txt"] == "now downloaded before\n"
    assert files["sub/local.txt"] == "of the task\n"
    assert files["cache/o"] == "400 600\n"
    assert files["tries"] == "x\n" * 3
    assert "seen" in files
    assert files["windows"] == "1"


def test_what_cannot_be_done_ends_the_set_up_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_isolation()
    monkeypatch.setattr("eval.benchmarks.osworld.steps.WINDOW_S", 0.1)
    monkeypatch.setattr("eval.benchmarks.osworld.steps.UNTIL_S", 0.1)
    url = "https://files.example.com/notes.txt"
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("launch", {"command": ["no-such-program"]}, "missing dependency: .*no-such-program"),
        ("execute", {"command": ["no-such-program"]}, "missing dependency: .*no-such-program"),
        ("execute", {"command": "echo {CLIENT_PASSWORD} | sudo -S true"}, "missing dependency: rights of root"),
        ("download", {"files": [{"url": url, "path": "a"}]}, f"missing dependency: download {url}"),
        ("upload_file", {"files": [{"local_path": "none", "path": "a"}]}, "missing dependency: file .*none"),
        ("change_wallpaper", {"path": "/home/user/a.png"}, "missing dependency: .*no wallpaper"),
        ("login", {}, "missing dependency: an account"),
        ("googledrive", {}, "missing dependency: an account"),
        ("proxy", {}, "missing dependency: a proxy"),
        ("tidy_desktop", {}, "no such step"),
        ("activate_window", {"window_name": "none"}, "no window none"),
        ("command", {"command": ["true"], "until": {"returncode": 1}}, ".* did not give"),
        ("sleep", {}, "its parameters: KeyError"),
        ("open", {"path": "/home/user/none.txt"}, ".*not found: /home/user/none.txt"),
    ]
    trials = [[(kind, given), ("execute", {"command": ["touch", "went-on"]})] for kind, given, _ in cases]
    errors, files, _ = asyncio.run(done(tmp_path, *trials))
    for (kind, _, text), error in zip(cases, errors, strict=True):
        with pytest.raises(SetupFailed, match=f"step 1 of 2, {kind}: {text}"):
            raise error or AssertionError(f"{kind} was done")
        assert isinstance(error, NotRunHere) == text.startswith("missing dependency")
    assert "went-on" not in files


def test_a_window_that_the_agent_closed_is_passed_over_before_judging(tmp_path: Path) -> None:
    need_isolation()
    steps: Many = [("activate_window", {"window_name": "none"}), ("execute", {"command": ["touch", "went-on"]})]
    errors, files, passed_over = asyncio.run(done(tmp_path, steps, judging=True))
    assert (errors, passed_over) == ([None], ["no window none"])
    assert "went-on" in files
