"""The official clients play what an evaluation played, and get its scores and its pictures, bit for bit."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from PIL import Image

from eval.actions import Action, ActionType
from eval.agents.base import Decision
from eval.agents.computer import Computer
from eval.environments.registry import environment, tasks_of
from eval.episodes import Episode, frame_name, jsonl, read_episode
from eval.records.task_record import TaskRecord
from eval.rollout.limits import RolloutLimits
from eval.rollout.loop import rollout
from tests.support.documented import ROOT
from tests.support.needs import need
from tests.support.serving import TOKEN, command, served

pytestmark = [pytest.mark.ci, pytest.mark.timeout(1200)]
PYTHON: Final = ROOT / ".venv-clients/bin/python"
FACES: Final = ("openenv", "mcp", "mcp stdio", "ors")
LOGIN: Final = {"environment": "login", "options": {}, "seed": 1000000}
NOTES: Final = {"environment": "desktop", "options": {"tree": False}, "seed": 1000000}


class Player:
    """Follows the expert; of every third task it says done after two answers."""

    name = "client"

    async def run(self, computer: Computer) -> None:
        while not computer.ended.is_set():
            expected = computer.observation.expected
            assert expected is not None
            action = expected.action
            if computer.task.seed % 3 == 2 and len(computer.steps) == 2:
                action = Action(ActionType.DONE)
            await computer.answer(Decision(json.dumps(action.to_json()), action))


def evaluated(world: dict[str, Any], count: int, out: Path) -> list[TaskRecord]:
    """What an evaluation says of these tasks."""
    tasks = tasks_of(world["environment"], count, world["seed"], world["options"])
    results = asyncio.run(
        rollout(
            Player(),
            lambda: environment(world["environment"]).desktop(world["options"]),
            tasks,
            out=out,
            benchmark="served",
            environment=world["environment"],
            version="1",
            options=world["options"],
            limits=RolloutLimits(concurrency=2),
        )
    )
    return [result.record for result in results]


def pictures(folder: Path, episode: Episode) -> list[str]:
    """The sha256 of each frame's pixels, the last screen among them."""
    out = []
    for number in range(len(episode.steps) + 1):
        image = Image.open(folder / frame_name(number)).convert("RGB")
        out.append(hashlib.sha256(image.tobytes() + repr(image.size).encode()).hexdigest())
    return out


def told(record: TaskRecord) -> dict[str, Any]:
    """What of a record must be the same."""
    return {
        name: getattr(record, name)
        for name in ("task_id", "seed", "score", "success", "outcome", "steps", "parse_failures", "refused", "cut")
    } | {"state_solved": record.state_solved, "content": record.content, "identity": record.identity}


def played(
    face: str, folder: Path, world: dict[str, Any], episodes: list[Episode]
) -> tuple[list[Any], list[TaskRecord]]:
    """What the client of the face saw, and what the server recorded."""
    need("clients")
    config = {name: world[name] for name in ("environment", "options")}
    config["tasks"] = {"count": len(episodes), "seed": world["seed"]}
    asked: dict[str, Any] = {
        "token": TOKEN,
        "cwd": str(ROOT),
        "size": episodes[0].screen,
        "episodes": [
            {
                "task": episode.task_id,
                "seed": episode.seed,
                "actions": [action.to_json() for step in episode.steps for action in step.actions],
            }
            for episode in episodes
        ],
    }

    def play(where: Any) -> list[Any]:
        done = subprocess.run(
            [PYTHON, Path(__file__).with_name("players.py"), face.split()[0]],
            input=json.dumps({**asked, "where": where}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))

    if face == "mcp stdio":
        seen = play(command("mcp", folder, config))
        return seen, jsonl.read(folder / "out/tasks.jsonl", TaskRecord)
    with served(face, folder, config) as server:
        return play(server.url), server.records()


def compare(face: str, tmp_path: Path, world: dict[str, Any], count: int, *, pixels: bool) -> None:
    wanted = evaluated(world, count, tmp_path / "evaluated")
    folders = [tmp_path / "evaluated" / str(record.episode) for record in wanted]
    episodes = [read_episode(folder) for folder in folders]
    (tmp_path / "served").mkdir()
    seen, records = played(face, tmp_path / "served", world, episodes)
    assert {record.success for record in wanted} == {True, False}
    assert [told(record) for record in records] == [told(record) for record in wanted]
    assert [(each["score"], each["success"], each["done"]) for each in seen] == [
        (record.score, record.success, True) for record in wanted
    ]
    if pixels:
        assert [each["pictures"] for each in seen] == [
            pictures(folder, episode) for folder, episode in zip(folders, episodes, strict=True)
        ]


@pytest.mark.parametrize("face", FACES)
def test_a_client_gets_the_score_and_the_pictures_of_an_evaluation(face: str, tmp_path: Path) -> None:
    compare(face, tmp_path, LOGIN, 4, pixels=True)


@pytest.mark.nightly
@pytest.mark.parametrize("face", FACES)
def test_a_client_gets_the_scores_of_fifty_tasks(face: str, tmp_path: Path) -> None:
    compare(face, tmp_path, LOGIN, 50, pixels=True)


@pytest.mark.parametrize("face", ["openenv", "mcp stdio"])
def test_a_client_works_on_a_real_desktop(face: str, tmp_path: Path) -> None:
    need("desktop")
    compare(face, tmp_path, NOTES, 3, pixels=False)


@pytest.mark.parametrize(("face", "told"), [("openenv", "0.0 True False\n"), ("ors", "0.0 True\n")])
def test_the_lines_of_the_page_do_what_it_says(face: str, told: str, tmp_path: Path) -> None:
    need("clients")
    page = (ROOT / "docs/howto/your-trainer.md").read_text()
    (code,) = (each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if f"from {face}" in each)
    assert f"Expect `{told.strip()}`" in page
    config = yaml.safe_load((ROOT / "examples/serve/login.yaml").read_text())
    with served(face, tmp_path, config) as server:
        typed = code.replace("127.0.0.1:8000", server.url.removeprefix("http://")).replace("TOKEN", TOKEN)
        done = subprocess.run([PYTHON, "-c", typed], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (told, 0), done.stderr
