"""Assistants by the official SDK of MCP: one does a note by hand as the example shows, one has a plain desktop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from eval.episodes import jsonl, read_episode
from eval.records.task_record import TaskRecord
from tests.support.documented import ROOT
from tests.support.needs import need

pytestmark = [pytest.mark.ci, pytest.mark.timeout(600)]
PLAIN: Final = """
import asyncio, json, sys
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
async def main(command, *arguments):
    async with Client(stdio_client(StdioServerParameters(command=command, args=list(arguments)))) as client:
        tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        calls = [("screenshot", {}), ("type", {"text": "milk"}), ("done", {})]
        seen = [await client.call_tool(name, arguments) for name, arguments in calls]
        print(json.dumps({
            "start": tools["start"]["properties"],
            "told": [each.structured_content for each in seen],
            "words": [each.content[0].text for each in seen],
            "pictures": [each.content[1].data for each in seen],
        }))
asyncio.run(main(*sys.argv[1:]))
"""


def ran(program: list[str], config: str, out: Path) -> str:
    """What a client of the SDK printed, which started the server itself."""
    need("clients", "desktop")
    server = [sys.executable, "-m", "eval.serve", "mcp", "--config", config, "--out", str(out)]
    python = ROOT / ".venv-clients/bin/python"
    done = subprocess.run([python, *program, *server], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_note_is_written_by_hand(tmp_path: Path) -> None:
    told = ran(["examples/serve/mcp_note.py"], "examples/serve/notes.yaml", tmp_path).splitlines()
    assert "Write one more line at its end" in told[0]
    assert "'success': True, 'score': 1.0" in told[1]
    (record,) = jsonl.read(tmp_path / "tasks.jsonl", TaskRecord)
    assert (record.outcome, record.score, record.success, record.steps) == ("scored", 1.0, True, 4)
    episode = read_episode(tmp_path / str(record.episode))
    assert [step.action.type for step in episode.steps if step.action] == ["hotkey", "type", "hotkey", "done"]


def test_without_a_task_there_is_a_plain_desktop_and_no_judge(tmp_path: Path) -> None:
    told: dict[str, Any] = json.loads(ran(["-c", PLAIN], "examples/serve/desktop.yaml", tmp_path))
    assert told["start"] == {}  # there is no task to choose
    assert [each["steps"] for each in told["told"]] == [0, 1, 2]
    assert told["told"][2] == {"steps": 2, "done": True, "task": "desktop", "success": None, "score": None}
    assert "nothing was judged" in told["words"][2]
    assert told["pictures"][0] != told["pictures"][1]  # the editor has the text
    assert jsonl.read(tmp_path / "tasks.jsonl", TaskRecord) == []
    episode = read_episode(tmp_path / "episodes/desktop-0")
    assert (episode.score, episode.screen) == (None, (1280, 720))
    assert [step.action.type for step in episode.steps if step.action] == ["type", "done"]
