"""One instruction of a person's own, given to an agent on a real desktop, and watched."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval import tryout
from eval.actions import ActionType
from eval.episodes import read_episode
from tests.support.documented import ROOT
from tests.support.modelserver import Reply, completion, serving

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.timeout(240)]
ANSWERS = ('Action: TYPE(text="bread and milk")', "Action: DONE()")


def written(folder: Path, **config: Any) -> Path:
    file = folder / "tryout.json"
    file.write_text(json.dumps({"limits": {"max_steps": 5}, "screen": [800, 600], **config}))
    return file


@contextlib.contextmanager
def begun(folder: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    agent = {"kind": "openai-compatible", "model": "m", "base_url": f"{url}/v1", "retries": 0}
    command = [
        sys.executable,
        "-m",
        "eval.tryout",
        "Write bread and milk",
        "--config",
        str(written(folder, agent=agent)),
    ]
    command += ["--out", str(folder / "out")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def page_of(process: subprocess.Popen[str]) -> str:
    """The page that the program prints."""
    assert process.stdout is not None
    head, _, url = process.stdout.readline().strip().partition(": ")
    assert head == "watch"
    assert process.stdout.readline().startswith("password: ")
    with urllib.request.urlopen(url, timeout=60) as page:
        return str(page.read().decode())


def test_a_person_watches_while_the_agent_works_and_the_episode_is_not_judged(tmp_path: Path) -> None:
    watched = threading.Event()

    def answer(request: dict[str, Any], number: int) -> Reply:
        watched.wait(120)
        return Reply(completion(ANSWERS[number]))

    with serving(answer) as server, begun(tmp_path, server.url) as process:
        assert "noVNC" in page_of(process)  # the agent has not answered yet
        watched.set()
        told, trouble = process.communicate(timeout=120)
        assert process.returncode == 0, trouble
    assert told == f"steps: 2; it says done\nepisode: {tmp_path}/out/try-1\n"
    assert "Write bread and milk" in json.dumps(server.requests[0])
    episode = read_episode(tmp_path / "out/try-1")
    assert (episode.instruction, episode.outcome, episode.success, episode.score) == (
        "Write bread and milk",
        "scored",
        None,
        None,
    )
    assert [step.action.type for step in episode.steps if step.action] == [ActionType.TYPE, ActionType.DONE]
    # the desktop was acted on: the picture after the typing is another one
    assert (tmp_path / "out/try-1/000.png").read_bytes() != (tmp_path / "out/try-1/001.png").read_bytes()


def test_ctrl_c_ends_it_and_keeps_the_steps_until_then(tmp_path: Path) -> None:
    asked = threading.Event()

    def answer(request: dict[str, Any], number: int) -> Reply:
        if number == 0:
            return Reply(completion(ANSWERS[0]))
        asked.set()
        return Reply(hold=True)

    with serving(answer) as server, begun(tmp_path, server.url) as process:
        assert asked.wait(120)
        process.send_signal(signal.SIGINT)
        _, trouble = process.communicate(timeout=120)
        assert (process.returncode, trouble) == (130, "tryout: stopped\n")
    episode = read_episode(tmp_path / "out/try-1")
    assert len(episode.steps) == 1
    assert episode.metadata == {"agent_failure": "stopped by a person"}


@pytest.mark.parametrize(
    ("config", "status", "message"),
    [
        ({"agent": {"kind": "scripted"}}, 78, "config: agent: scripted follows the expert of a task"),
        ({"agent": {"kind": "nothing"}, "open": ["a 'b"]}, 78, 'config: open[0]: "a \'b": No closing quotation'),
        ({"agent": {"kind": "nothing"}, "screen": [10, 10]}, 78, "config: screen: 10 x 10; allowed: 320 to 7680 each"),
        ({"agent": {"kind": "nothing"}, "view": "all"}, 78, "view"),
        ({"agent": {"kind": "nothing"}, "open": ["no-such-program"]}, 1, "tryout: SetupFailed: open: no-such-program"),
    ],
    ids=["no expert", "no command", "screen", "view", "no program"],
)
def test_what_cannot_be_tried_is_one_line(
    config: dict[str, Any], status: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["Write it", "--config", str(written(tmp_path, **config)), "--out", str(tmp_path / "out")]
    assert tryout.main(given) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_each_try_has_a_folder_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, agent={"kind": "nothing"}, view="none", open=[])
    for number in (1, 2):
        assert tryout.main(["Wait", "--config", str(file), "--out", str(tmp_path / "out")]) == 0
        assert capsys.readouterr().out == f"steps: 1; it says done\nepisode: {tmp_path}/out/try-{number}\n"
    assert len(read_episode(tmp_path / "out/try-1").steps) == 1
