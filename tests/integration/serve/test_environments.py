"""Environments behind servers of OpenEnv and MCP are ours: the same scores, and typed failures."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any, Final

import pytest

from eval.actions import Action, ActionType
from eval.agents.base import Decision
from eval.agents.computer import Computer
from eval.config import ConfigError
from eval.environments import login, mcp, openenv
from eval.environments.registry import tasks_of
from eval.records.task_record import TaskRecord
from eval.rollout.loop import RolloutLimits, rollout
from tests.support.serving import TOKEN, command, served

LOGIN: Final[dict[str, Any]] = {"environment": "login", "tasks": {"count": 3, "seed": 1000000}}


MODULES: Final[dict[str, Any]] = {"openenv": openenv, "mcp": mcp}


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TOKEN", TOKEN)


def options_of(face: str, url: str) -> dict[str, Any]:
    """The options of the environment for a server of ours."""
    where = {"url": url} if face == "openenv" else {"mcp": f"{url}/mcp", "start": "start"}
    return {**where, "token": "THE_TOKEN"}


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


def played(
    agent: Any, name: str, desktop: Any, options: dict[str, Any], out: Path, at_once: int = 2
) -> list[TaskRecord]:
    made = rollout(
        agent,
        lambda: desktop(options),
        tasks_of(name, 3, 1000000, options),
        out=out,
        benchmark="b",
        environment=name,
        options=options,
        limits=RolloutLimits(concurrency=at_once, attempts=2, backoff=0.0),
    )
    return [result.record for result in asyncio.run(made)]


def told(records: list[TaskRecord]) -> list[Any]:
    return [(record.seed, record.score, record.success, record.steps) for record in records]


@pytest.mark.parametrize("face", MODULES)
def test_an_environment_behind_a_server_gives_the_same_scores(face: str, tmp_path: Path) -> None:
    expert = Expert()
    here = played(expert, "login", login.desktop, {}, tmp_path / "here")
    with served(face, tmp_path, LOGIN) as server:
        options = options_of(face, server.url)
        tasks = tasks_of(face, 3, 1000000, options)
        assert [task.instruction for task in tasks] == [task.instruction for task in tasks_of("login", 3, 1000000, {})]
        there = played(Again(expert.done), face, MODULES[face].desktop, options, tmp_path / "there")
    assert told(there) == told(here)
    assert all(record.success for record in there)


def test_an_environment_behind_a_command_gives_the_same_scores(tmp_path: Path) -> None:
    expert = Expert()
    here = played(expert, "login", login.desktop, {}, tmp_path / "here")
    options = {"mcp": shlex.join(command("mcp", tmp_path, LOGIN)), "start": "start", "instruction": "Log in."}
    there = played(Again(expert.done), "mcp", mcp.desktop, options, tmp_path / "there", 1)  # all record in one folder
    assert told(there) == told(here)


@pytest.mark.parametrize("face", MODULES)
def test_a_server_that_goes_away_is_no_score(face: str, tmp_path: Path) -> None:
    with served(face, tmp_path, LOGIN) as server:
        options = {**options_of(face, server.url), "instruction": "Log in."}
    records = played(Again({}), face, MODULES[face].desktop, options, tmp_path / "out")
    assert [(record.outcome, record.score, record.attempts) for record in records] == [("infra", None, 2)] * 3
    assert all("DesktopGone" in (record.error or "") for record in records)


@pytest.mark.parametrize("face", MODULES)
def test_a_server_that_is_killed_in_an_episode_is_no_score(face: str, tmp_path: Path) -> None:
    class Killing:
        """Ends the server, and says that it is done."""

        name = "killing"

        async def run(self, computer: Computer) -> None:
            server.process.kill()
            server.process.wait()
            await computer.answer(Decision("", Action(ActionType.DONE)))

    with served(face, tmp_path, LOGIN) as server:
        options = {**options_of(face, server.url), "instruction": "Log in."}
        records = played(Killing(), face, MODULES[face].desktop, options, tmp_path / "out")
    assert [(record.outcome, record.score) for record in records] == [("infra", None)] * 3


@pytest.mark.parametrize("face", MODULES)
def test_a_wrong_token_is_one_error_and_is_not_shown(
    face: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_TOKEN", "a-wrong-secret")
    with served(face, tmp_path, LOGIN) as server, pytest.raises(ConfigError, match=r"options\.token") as refused:
        tasks_of(face, 1, 1000000, options_of(face, server.url))
    assert "a-wrong-secret" not in str(refused.value)
