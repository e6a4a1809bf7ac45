"""A measurement that goes on: what was recorded of another task of the same name is played again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from eval.benchmarks.linux_desktop import measuring
from eval.benchmarks.linux_desktop.environment import LinuxDesktopOptions
from eval.desktop import Score, Task


def test_only_tasks_of_another_identity_are_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = []

    async def hack(task: Task, options: LinuxDesktopOptions) -> Score:
        played.append(task.task_id)
        return Score(0.0, False)

    monkeypatch.setattr(measuring, "hack", hack)
    tasks = [Task(name, "", 1, identity={"code": "a"}) for name in ("calc-sum", "xterm-count")]

    def measure() -> list[tuple[str, str]]:
        asyncio.run(measuring.measure(tasks, LinuxDesktopOptions(), ["hacker"], tmp_path))
        found = measuring.recorded(tmp_path).played
        return [(each.template, each.identity["code"]) for each in found]

    measure()
    tasks[0] = replace(tasks[0], identity={"code": "b"})
    assert sorted(measure()) == [("calc-sum", "b"), ("xterm-count", "a")]
    assert played == ["calc-sum", "xterm-count", "calc-sum"]
