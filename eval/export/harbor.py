"""The tasks of a configuration of `eval.serve` as folders of Harbor, one for each: `harbor run -p OUT/TASK -a AGENT`.

Beside the agent's container stands one with the desktop, its server (MCP) and the checker. The agent acts by its tools;
the verifier asks the server, which ends the episode and tells the checker's score. What the infrastructure failed has
no reward. The solution is what the environment's expert did on a desktop of this machine.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.actions import ActionType
from eval.actions.geometry import Cells
from eval.config import ConfigError
from eval.desktop import Task
from eval.desktops.mcp.tools import call_of
from eval.environments.registry import TasksConfig, tasks_of
from eval.export.source import part
from eval.records.task_record import episode_id
from eval.serve.config import ServeConfig

TOKEN: Final = "SERVE_TOKEN"
SERVER: Final = "http://desktop:8000"
MAX_STEPS: Final = 200  # of an expert whose task says no number
COMPOSE: Final = f"""\
# The desktop and its checker stand apart from the agent. {TOKEN} is the user's: export {TOKEN}=$(openssl rand -hex 16)
services:
  main:
    depends_on:
      desktop: {{condition: service_healthy}}
  desktop:
    build: {{context: "${{CONTEXT_DIR}}", dockerfile: desktop.Dockerfile}}
    environment: {{{TOKEN}: "${{{TOKEN}:?export {TOKEN}, any words of yours}}"}}
    healthcheck:
      test: [CMD, python, -c, "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health')"]
      interval: 2s
      retries: 60
"""
DESKTOP: Final = """\
FROM {image}
COPY serve.json /opt/serve.json
ENTRYPOINT ["python", "-m", "eval.serve", "mcp", "--config", "/opt/serve.json", "--listen", "0.0.0.0:8000"]
CMD ["--out", "/tmp/served"]
"""
ASKING: Final = f"""\
import json
import os
import urllib.request

SERVER = os.environ.get("DESKTOP_URL", "{SERVER}")


def ask(path, body=None, session=None):
    headers = {{"Authorization": "Bearer " + os.environ["{TOKEN}"], "Content-Type": "application/json"}}
    if session:
        headers["Mcp-Session-Id"] = session
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(SERVER + path, data, headers), timeout=900) as answer:
        return json.loads(answer.read() or b"null"), answer.headers.get("Mcp-Session-Id")
"""
VERDICT: Final = f"""\
# Ends the episode, as if the agent had said done, and prints the checker's score. Without one it fails.
{ASKING}

print(ask("/verdict")[0]["score"])
"""
SOLVE: Final = f"""\
# Does what the environment's expert did: calls of the desktop's tools, by MCP.
{ASKING}

def request(method, **params):
    return {{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}}


client = {{"protocolVersion": "2025-11-25", "capabilities": {{}}, "clientInfo": {{"name": "solution", "version": "1"}}}}
_, session = ask("/mcp", request("initialize", **client))
with open(os.path.join(os.path.dirname(__file__), "calls.json")) as file:
    calls = json.load(file)
for name, arguments in [["start", {{}}], *calls]:
    answer, _ = ask("/mcp", request("tools/call", name=name, arguments=arguments), session)
    print(name, arguments, answer["result"]["content"][0]["text"], flush=True)
"""
TEST: Final = """\
#!/bin/sh
python3 /tests/verdict.py >/tmp/reward && mv /tmp/reward /logs/verifier/reward.txt
"""
SOLVE_SH: Final = """\
#!/bin/sh
python3 /solution/solve.py
"""


def write(config: ServeConfig, out: Path, *, image: str, base: str, solutions: bool = True) -> Counter[str]:
    """Writes a folder for each task; gives counts: tasks, of them those with a solution.

    image      has Slipway and the programs of the desktop; base: the agent's container, with Python 3
    solutions  whether the expert's way is written, which needs the desktops of the tasks on this machine

    Raises ConfigError.
    """
    if config.tasks is None:
        raise ConfigError("tasks: is missing; Harbor's tasks are judged")
    config.check()
    counts: Counter[str] = Counter()
    for task in tasks_of(config.environment, config.tasks.count, config.tasks.seed, config.options):
        calls = asyncio.run(expert_calls(config, task)) if solutions else None
        _write_task(out / part(episode_id(task)), _alone(config, task), task, calls, image, base)
        counts["tasks"] += 1
        counts["of them with a solution"] += calls is not None
    return counts


def _alone(config: ServeConfig, task: Task) -> ServeConfig:
    """What serves this task, and no other. Raises ConfigError where the environment gives another one for its seed."""
    (first,) = tasks_of(config.environment, 1, task.seed, config.options)
    if (first.task_id, first.instruction) != (task.task_id, task.instruction):
        raise ConfigError(
            f"environment {config.environment}: its task {task.task_id} cannot be drawn by its seed alone"
        )
    limits = msgspec.structs.replace(config.limits, concurrency=1)
    return msgspec.structs.replace(config, tasks=TasksConfig(1, task.seed), shared=True, limits=limits)


async def expert_calls(config: ServeConfig, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
    """The calls of tools by which the environment's expert solves a task; None where it has no expert. Raises
    ConfigError where the expert does not solve it."""
    desktop = config.desktop()
    calls = []
    try:
        seen = await desktop.reset(task, task.seed)
        while seen.expected is not None:
            action = seen.expected.action
            calls.append(call_of(action, Cells(*seen.image.size)))
            seen = await desktop.step(action)
            if action.type is ActionType.DONE or len(calls) == (task.max_steps or MAX_STEPS):
                break
        if not calls:
            return None
        if not (await desktop.score()).success:
            raise ConfigError(f"{task.task_id}: the environment's expert does not solve it here")
    finally:
        await desktop.close()
    return calls


def _write_task(
    folder: Path,
    config: ServeConfig,
    task: Task,
    calls: list[tuple[str, dict[str, Any]]] | None,
    image: str,
    base: str,
) -> None:
    files = {
        "task.toml": _toml(config, task),
        "instruction.md": _instruction(task),
        "environment/Dockerfile": f"FROM {base}\nUSER root\nENTRYPOINT []\nWORKDIR /work\n",
        "environment/desktop.Dockerfile": DESKTOP.format(image=image),
        "environment/docker-compose.yaml": COMPOSE,
        "environment/serve.json": json.dumps(msgspec.to_builtins(config), indent=1) + "\n",
        "tests/test.sh": TEST,
        "tests/verdict.py": VERDICT,
    }
    if calls is not None:
        files |= {"solution/solve.sh": SOLVE_SH, "solution/solve.py": SOLVE}
        files["solution/calls.json"] = json.dumps(calls, indent=1) + "\n"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if name.endswith(".sh") else 0o644)


def _instruction(task: Task) -> str:
    how = "Use the tools of the MCP server `desktop`: each shows the screen. Call `done` at the end."
    return f"{task.instruction}\n\n{how}\n"


def _toml(config: ServeConfig, task: Task) -> str:
    """task.toml; its texts are JSON's, which TOML reads as they are."""
    about = {
        "benchmark": config.benchmark,
        "version": config.version,
        "environment": config.environment,
        "task_id": task.task_id,
        "seed": task.seed,
        "difficulty": task.difficulty,
    }
    metadata = "\n".join(f"{name} = {_text(value)}" for name, value in about.items())
    token = f'{TOKEN} = "${{{TOKEN}}}"'
    return f"""\
schema_version = "1.4"

[task]
name = {_text(f"slipway/{part(episode_id(task))}")}
keywords = ["desktop", "computer-use"]

[metadata]
{metadata}

[agent]
timeout_sec = {config.limits.answer_timeout}

[verifier]
timeout_sec = {2 * config.limits.reset_timeout}

[verifier.env]
{token}

[solution.env]
{token}

[environment]
build_timeout_sec = 1800.0

[[environment.mcp_servers]]
name = "desktop"
transport = "streamable-http"
url = "{SERVER}/mcp"
headers = {{ Authorization = "Bearer ${{{TOKEN}}}" }}
"""


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
