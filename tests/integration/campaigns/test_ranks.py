"""One evaluation of three processes; two of them are killed in the middle of their tasks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.campaigns.slow import ENVIRONMENT, lines
from tests.support.documented import ROOT
from tests.support.waiting import until

COUNT = 18
CONFIG: dict[str, Any] = {
    "benchmark": "slow",
    "environment": "slow_world:Slow",
    "tasks": {"count": COUNT, "seed": 0},
    "agent": {"kind": "random"},
    "baselines": [{"kind": "random", "name": "other"}],
    "options": {"slow": 0.2},
    "limits": {"max_steps": 5, "concurrency": 2},
    "keep_episodes": COUNT,
}


def start(folder: Path, rank: int, port: int) -> subprocess.Popen[bytes]:
    environ = {
        **os.environ, "LOG": str(folder / "log"), "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "RANK": str(rank),
        "SLIPWAY_NODES": "3", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    command = [sys.executable, "-m", "eval.run", "--config", "config.json", "--out", f"results-{rank}"]
    with (folder / f"said-{rank}").open("ab") as said:
        return subprocess.Popen(command, cwd=folder, env=environ, stdout=said, stderr=said)


def working(folder: Path) -> set[int]:
    """The processes that have begun a task."""
    log = folder / "log"
    told = log.read_text().splitlines() if log.exists() else []
    return {int(line.split()[2]) for line in told if line.startswith("start")}


@pytest.mark.timeout(600)
def test_ranks_share_the_tasks_and_a_killed_ones_are_taken_back(tmp_path: Path) -> None:
    (tmp_path / "slow_world.py").write_text(ENVIRONMENT)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "log.mended").touch()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with ExitStack() as stack:
        ranks = [stack.enter_context(start(tmp_path, rank, port)) for rank in range(3)]
        until(lambda: len(working(tmp_path)) == 3, lambda: (tmp_path / "said-1").read_text()[-1000:])
        ranks[2].send_signal(signal.SIGKILL)
        assert ranks[2].wait() == -signal.SIGKILL
        ranks.append(stack.enter_context(start(tmp_path, 2, port)))  # as a runtime starts it again
        assert [ranks[rank].wait() for rank in (0, 1, 3)] == [0, 0, 0], (tmp_path / "said-0").read_text()[-2000:]

    for out in (tmp_path / "results-0", tmp_path / "results-0/baselines/other"):
        found_ = [json.loads(line) for line in (out / "tasks.jsonl").read_text().splitlines()]
        assert [each["task_id"] for each in found_] == ["flaky", *(f"t{number}" for number in range(COUNT - 1))]
        assert {each["outcome"] for each in found_} == {"scored"}
        assert all(each["attempts"] == 1 for each in found_)
    for each in (tmp_path / "results-0/episodes").iterdir():
        assert (each / "episode.json").is_file()
        assert len(list(each.glob("*.png"))) == 6
    assert len(list((tmp_path / "results-0/episodes").iterdir())) == COUNT
    assert not (tmp_path / "results-1").exists()
    assert set(lines(tmp_path / "log", "judge").values()) == {2}  # of the agent, and of the baseline
    again = [task for task, count in lines(tmp_path / "log", "start").items() if count > 2]
    assert 1 <= len(again) <= 2  # what rank 2 had begun
    summary = json.loads((tmp_path / "results-0/summary.json").read_text())
    assert {(row["agent"], row["n"]) for row in summary if row["metric"] == "success"} == {
        ("random", COUNT), ("other", COUNT)
    }  # fmt: skip
