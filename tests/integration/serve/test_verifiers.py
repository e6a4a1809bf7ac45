"""verifiers evaluates agents on our tasks by the example, through OpenEnv: the scores are ours, the pictures arrive."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from eval.agents.wire import png
from eval.config import convert
from eval.environments.registry import environment, tasks_of
from eval.serve.config import ServeConfig
from tests.support.documented import ROOT
from tests.support.modelserver import ModelServer, Reply, serving
from tests.support.needs import need
from tests.support.serving import TOKEN, served

ENVIRONMENT: Final = ROOT / ".venv-verifiers/bin"
UV: Final = f"""#!/bin/sh
# in the place of uv, which would install packages that the lock holds already, in whatever version is the newest
[ "$1" = python ] && echo "{ENVIRONMENT / "python"}" || exit 0
"""
pytestmark = [pytest.mark.ci, pytest.mark.timeout(900)]
LOGIN: Final[dict[str, Any]] = {"environment": "login", "tasks": {"count": 2, "seed": 1000000}}


async def expert(config: ServeConfig) -> dict[str, tuple[list[str], list[str]]]:
    """Instruction -> the expert's answers in the configured dialect, and the screens that it saw before each (PNG)."""
    assert config.tasks is not None
    found = {}
    dialect = config.prompt.builder().dialect
    for task in tasks_of(config.environment, config.tasks.count, config.tasks.seed, config.options):
        desktop = environment(config.environment).desktop(config.options)
        seen = await desktop.reset(task, task.seed)
        answers: list[str] = []
        screens: list[str] = []
        while not answers or "DONE" not in answers[-1]:
            assert seen.expected is not None
            screens.append(png(seen.image))
            answers.append(dialect.format_response(seen.expected.action))
            seen = await desktop.step(seen.expected.action)
        await desktop.close()
        found[task.instruction] = answers, screens
    return found


def text_of(message: dict[str, Any]) -> str:
    return " ".join(part["text"] for part in message["content"] if part["type"] == "text")


def pictures_of(messages: list[dict[str, Any]]) -> list[str]:
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    return [part["image_url"]["url"].partition(",")[2] for part in parts if part["type"] == "image_url"]


def streamed(text: str) -> Reply:
    """An answer of a model as a stream, which verifiers asks for."""
    head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "given"}
    parts = [({"role": "assistant", "content": text}, None), ({}, "stop")]
    chunks = [{**head, "choices": [{"index": 0, "delta": part, "finish_reason": end}]} for part, end in parts]
    return Reply(events=[*map(json.dumps, chunks), "[DONE]"])


def evaluated(folder: Path, url: str, model: ModelServer) -> list[dict[str, Any]]:
    """The episodes that verifiers wrote."""
    command = [
        *(ENVIRONMENT / "vf-eval", "verifiers_desktops", "--env.taskset.url", url),
        *("--env.taskset.count", 2, "--no-push", "--no-rich", "-o", folder, "--run.name", "run"),
        *("-m", "given", "--client.base-url", f"{model.url}/v1", "--client.api-key-var", "GIVEN_KEY"),
    ]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "examples/serve"), "GIVEN_KEY": "any", "SERVE_TOKEN": TOKEN}
    (folder / "uv").write_text(UV)
    (folder / "uv").chmod(0o755)
    environ["PATH"] = f"{folder}:{environ['PATH']}"
    done = subprocess.run(list(map(str, command)), cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return [json.loads(line) for line in (folder / "run/traces.jsonl").read_text().splitlines()]


def test_an_agent_is_evaluated_and_sees_the_pictures(tmp_path: Path) -> None:
    """One task is done as the expert does it; of the other the agent says at once that it is done."""
    need("verifiers")
    first, _ = asyncio.run(expert(convert(LOGIN, ServeConfig, "serve"))).items()

    def answer(request: dict[str, Any], _: int) -> Reply:
        asked = [message for message in request["messages"] if message["role"] == "user"]
        return streamed(first[1][0][len(asked) - 1] if first[0] in text_of(asked[0]) else "Action: DONE()")

    with served("openenv", tmp_path, LOGIN) as server, serving(answer) as model:
        episodes = evaluated(tmp_path, server.url, model)
        records = {record.seed: record for record in server.records()}
    told = {each["task"]["data"]["seed"]: each["traces"][0]["rewards"]["score"]["score"] for each in episodes}
    assert told == {seed: record.score for seed, record in records.items()} == {1000000: 1.0, 1000001: 0.0}
    assert [records[seed].steps for seed in sorted(records)] == [len(first[1][0]), 1]
    asked = [request["messages"] for request in model.requests if first[0] in text_of(request["messages"][0])]
    assert pictures_of(asked[-1]) == first[1][1]  # each screen that the expert saw, bit for bit
    assert TOKEN not in (tmp_path / "run/traces.jsonl").read_text()
