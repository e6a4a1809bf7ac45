"""Others' environments behind a server of OpenEnv are ours: the same scores, and typed failures."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from eval.actions import Action
from eval.agents.base import Decision
from eval.agents.computer import Computer
from eval.config import ConfigError
from eval.environments import login, openenv
from eval.environments.registry import tasks_of
from eval.records.task_record import TaskRecord
from eval.rollout.loop import RolloutLimits, rollout
from tests.support.serving import TOKEN, served

LOGIN: Final[dict[str, Any]] = {"environment": "login", "tasks": {"count": 3, "seed": 1000000}}


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_TOKEN", TOKEN)


class Expert:
    """Follows the expert of the login form, and notes what it does."""

    name = "expert"

    def __init__(self) -> None:
        self.done: dict[int, list[Action]] = {}

    async def run(self, computer: Computer) -> None:
        while not computer.ended.is_set():
            expected = computer.observation.expected
            assert expected is not None
            self.done.setdefault(computer.task.seed, []).append(expected.action)
            await computer.answer(Decision(json.dumps(expected.action.to_json()), expected.action))


class Again:
    """Does what was noted."""

    name = "again"

    def __init__(self, done: dict[int, list[Action]]) -> None:
        self.done = done

    async def run(self, computer: Computer) -> None:
        while not computer.ended.is_set():
            action = self.done[computer.task.seed][len(computer.steps)]
            await computer.answer(Decision(json.dumps(action.to_json()), action))


def played(agent: Any, name: str, desktop: Any, options: dict[str, Any], out: Path) -> list[TaskRecord]:
    made = rollout(
        agent,
        lambda: desktop(options),
        tasks_of(name, 3, 1000000, options),
        out=out,
        benchmark="b",
        environment=name,
        options=options,
        limits=RolloutLimits(concurrency=2, attempts=2, backoff=0.0),
    )
    return [result.record for result in asyncio.run(made)]


def test_an_environment_behind_openenv_gives_the_same_scores(tmp_path: Path) -> None:
    expert = Expert()
    here = played(expert, "login", login.desktop, {}, tmp_path / "here")
    with served("openenv", tmp_path, LOGIN) as server:
        options = {"url": server.url, "token": "OPENENV_TOKEN"}
        tasks = tasks_of("openenv", 3, 1000000, options)
        assert [task.instruction for task in tasks] == [task.instruction for task in tasks_of("login", 3, 1000000, {})]
        there = played(Again(expert.done), "openenv", openenv.desktop, options, tmp_path / "there")
    assert [(record.seed, record.score, record.success, record.steps) for record in there] == [
        (record.seed, record.score, record.success, record.steps) for record in here
    ]
    assert all(record.success for record in there)


def test_a_server_that_goes_away_is_no_score(tmp_path: Path) -> None:
    with served("openenv", tmp_path, LOGIN) as server:
        options = {"url": server.url, "token": "OPENENV_TOKEN", "instruction": "Log in."}
    records = played(Again({}), "openenv", openenv.desktop, options, tmp_path / "out")
    assert [(record.outcome, record.score, record.attempts) for record in records] == [("infra", None, 2)] * 3
    assert all("DesktopGone" in (record.error or "") for record in records)


def test_a_wrong_token_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_TOKEN", "wrong")
    with served("openenv", tmp_path, LOGIN) as server, pytest.raises(ConfigError, match=r"options\.token"):
        tasks_of("openenv", 1, 1000000, {"url": server.url, "token": "OPENENV_TOKEN"})
