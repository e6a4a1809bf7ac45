"""A campaign of Windows Agent Arena's shape: 154 task files of 11 domains, virtual machines (stand-ins that keep state)
and an evaluation of two processes. Every task begins at the snapshot, on a machine that no other process uses."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from launcher.results.read import DetailedResult
from tests.integration.eval.test_machines import Guest, start
from tests.support.documented import ROOT

DOMAINS = 11
COUNT = 154  # of Windows Agent Arena; CI has 44
# types which task it has, then says that it cannot be done
AGENT = """
from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.agents.base import Decision


class GivesUp:
    parallel = 1

    def __init__(self, builder, name):
        self.name = name

    async def act(self, observations, histories):
        actions = [
            Action(ActionType.FAIL) if each.past else Action(ActionType.TYPE, text=each.task.task_id.split("/")[1])
            for each in histories
        ]
        return [Decision(Dsl(4).format_response(action), action) for action in actions]
"""


@dataclass
class Watched(Guest):
    """Counts what another episode did in between: the set-up of one task, then the typing of another."""

    collisions: int = 0

    async def execute(self, request: web.Request) -> web.StreamResponse:
        answer = await super().execute(request)
        prepared = [command[2] for command in self.commands]
        self.collisions += len(prepared) != 1 or self.typed not in ("", prepared[0].removeprefix("mkdir C:\\"))
        return answer


def written(folder: Path, count: int) -> None:
    """The task files, a list with one id that no file has, the agent."""
    names: dict[str, list[str]] = {}
    for number in range(count):
        domain, name = f"domain_{number % DOMAINS}", f"{number:08d}-WOS"
        task = {
            "id": name, "snapshot": "windows", "instruction": f"Do {number}.", "source": "", "trajectory": "",
            "related_apps": [domain],
            "config": [{"type": "execute", "parameters": {"command": ["cmd", "/c", f"mkdir C:\\{name}"]}}],
            "evaluator": {"func": "infeasible"},
        }  # fmt: skip
        (folder / "tasks" / domain).mkdir(parents=True, exist_ok=True)
        (folder / "tasks" / domain / f"{name}.json").write_text(json.dumps(task))
        names.setdefault(domain, []).append(name)
    names["domain_0"].append("gone-WOS")
    (folder / "list.json").write_text(json.dumps(names))
    (folder / "giving_up.py").write_text(AGENT)


async def campaign(folder: Path, guests: list[Watched], count: int) -> list[tuple[int | None, str]]:
    """(exit code, what it said) of both processes."""
    async with AsyncExitStack() as stack:
        for guest in guests:
            await start(stack, guest)
        config = {
            "benchmark": "windows-agent-arena",
            "environment": "osworld",
            "tasks": {"count": None, "seed": 0},
            "agent": {"kind": "custom", "name": "gives-up", "factory": "giving_up:GivesUp"},
            "options": {"folder": "tasks", "list": "list.json", "machines": [guest.controller for guest in guests]},
            "limits": {"concurrency": 2},
            "keep_episodes": count,
        }
        (folder / "config.json").write_text(json.dumps(config))
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        told = []
        for rank in range(2):
            environ = {
                **os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "RANK": str(rank), "SLIPWAY_NODES": "2",
                "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            }  # fmt: skip
            command = [sys.executable, "-m", "eval.run", "--config", "config.json", "--out", "results"]
            told.append(
                await asyncio.create_subprocess_exec(
                    *command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
            )
        said = await asyncio.gather(*(each.communicate() for each in told))
        return [(each.returncode, words.decode()) for each, (words, _) in zip(told, said, strict=True)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [44, pytest.param(COUNT, marks=pytest.mark.nightly)])
def test_many_tasks_on_four_machines_by_two_ranks(tmp_path: Path, count: int) -> None:
    written(tmp_path, count)
    guests = [Watched() for _ in range(4)]
    ended = asyncio.run(campaign(tmp_path, guests, count))
    assert [code for code, _ in ended] == [0, 0], ended

    lines = (tmp_path / "results/tasks.jsonl").read_text().splitlines()
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert len({each["task_id"] for each in records}) == len(records) == count + 1
    (gone,) = [each for each in records if each["outcome"] == "not run"]
    assert gone["task_id"] == "domain_0/gone-WOS"
    records.remove(gone)
    assert {(each["outcome"], each["score"], each["success"], each["attempts"]) for each in records} == {
        ("scored", 1.0, True, 1)
    }
    assert {each["task_id"].split("/")[0] for each in records} == {f"domain_{number}" for number in range(DOMAINS)}
    assert sum(guest.collisions for guest in guests) == 0
    assert sum(guest.resets for guest in guests) == count
    assert all(guest.resets for guest in guests)

    # the results have the shape of every other evaluation: summary, one interval by task, OSWorld's own layout
    rules = records[0]["rules"]["options"]
    assert rules["stale"] == ["domain_0/gone-WOS"]
    rows = json.loads((tmp_path / "results/summary.json").read_text())
    (success,) = [row for row in rows if row["metric"] == "success"]
    (of_run,) = [row for row in rows if row["metric"] == "success_of_run"]
    assert (success["n"], success["value"]) == (count + 1, pytest.approx(count / (count + 1)))  # of the whole list
    assert (of_run["n"], of_run["value"]) == (count, 1.0)
    assert success["version"] == f"1 ({rules['revision']})" == DetailedResult(**_known(records[0])).edition
    command = [sys.executable, "-m", "eval.export", "osworld", "results", "layout"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    assert len(list((tmp_path / "layout").rglob("result.txt"))) == count


def _known(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("benchmark", "task_id", "version", "rules")}
