from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.campaigns.slow import ENVIRONMENT, lines
from tests.support.documented import ROOT
from tests.support.waiting import until

COUNT = 16
CONFIG: dict[str, Any] = {
    "benchmark": "slow",
    "environment": "slow_world:Slow",
    "tasks": {"count": COUNT, "seed": 0},
    "agent": {"kind": "random"},
    "limits": {"max_steps": 6, "concurrency": 2, "attempts": 1},
    "keep_episodes": 3,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slow_world.py").write_text(ENVIRONMENT)
    return tmp_path


def start(folder: Path, config: dict[str, Any], out: str = "results") -> subprocess.Popen[bytes]:
    (folder / "config.json").write_text(json.dumps(config))
    environ = {**os.environ, "LOG": str(folder / "log"), "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "eval.run", "--config", "config.json", "--out", out]
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(command, cwd=folder, env=environ, stdout=said, stderr=said)


def finish(folder: Path, config: dict[str, Any], out: str = "results") -> list[dict[str, Any]]:
    with start(folder, config, out) as process:
        assert process.wait() == 0, (folder / "said").read_text()[-2000:]
    return records(folder / out)


def records(out: Path) -> list[dict[str, Any]]:
    path = out / "tasks.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def judged(out: Path) -> set[str]:
    return {each["task_id"] for each in records(out) if each["outcome"] == "scored"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_paused_evaluation_computes_no_judged_task_again(how: signal.Signals, folder: Path) -> None:
    out, log = folder / "results", folder / "log"
    for pause in range(3):
        with start(folder, CONFIG) as process:
            until(lambda wanted=3 * (pause + 1): len(judged(out)) >= wanted or process.poll() is not None)
            assert process.poll() is None
            process.send_signal(how)
            process.wait()
        before, there = lines(log, "start"), judged(out)
        with start(folder, CONFIG) as process:  # killed as soon as it has begun something
            until(lambda before=before: lines(log, "start") != before or process.poll() is not None)
            process.kill()
            process.wait()
        again = lines(log, "start") - before
        assert not there & set(again)
    found = finish(folder, CONFIG)
    assert [each["task_id"] for each in found] == ["flaky", *(f"t{number}" for number in range(COUNT - 1))]
    assert [each["outcome"] for each in found] == ["infra", *["scored"] * (COUNT - 1)]
    for each in found[1:3]:
        assert (out / each["episode"] / "episode.json").is_file()

    started, had = lines(log, "start"), lines(log, "judge")
    Path(f"{log}.mended").touch()
    found = finish(folder, CONFIG)
    assert lines(log, "start") - started == {"flaky": 1}
    assert lines(log, "judge") - had == {"flaky": 1}
    assert {each["outcome"] for each in found} == {"scored"}


def test_limits_are_raised_and_another_runs_results_are_taken(folder: Path) -> None:
    """All tasks ran into the limit of 2 steps but those that another agent had solved; a time limit changes nothing."""
    Path(f"{folder / 'log'}.mended").touch()
    config = {**CONFIG, "tasks": {"count": 4, "seed": 0}, "limits": {"max_steps": 2, "concurrency": 2}}
    finish(folder, config)
    slower = {**config, "limits": {**config["limits"], "step_timeout": 500, "attempts": 5}}
    finish(folder, slower)
    assert set(lines(folder / "log", "start").values()) == {1}

    more = {**config, "limits": {"max_steps": 3, "concurrency": 2}, "earlier": "results"}
    found = finish(folder, more, "second")
    assert set(lines(folder / "log", "start").values()) == {2}
    assert [each["steps"] for each in found] == [3] * 4
    assert len((folder / "second/replaced.jsonl").read_text().splitlines()) == 4
    assert [each["steps"] for each in records(folder / "results")] == [2] * 4

    with start(folder, {**config, "earlier": "second"}, "third") as process:
        assert process.wait() == 78
    said = (folder / "said").read_text()
    assert "a limit can be raised, not lowered" in said.splitlines()[-1]
    assert "Traceback" not in said


def test_trials_give_the_mean_and_the_best_of_n(folder: Path) -> None:
    Path(f"{folder / 'log'}.mended").touch()
    config = {**CONFIG, "tasks": {"count": 3, "seed": 0}, "trials": 4, "options": {"slow": 0}}
    found = finish(folder, config)
    assert len(found) == 12
    rows = {row["metric"]: row for row in json.loads((folder / "results/summary.json").read_text())}
    assert {"success", "pass_at/2", "pass_at/4"} <= set(rows)
    assert (rows["success"]["n"], rows["success"]["clusters"]) == (12, 3)
    assert (rows["pass_at/4"]["n"], rows["pass_at/4"]["value"]) == (3, 0.0)
