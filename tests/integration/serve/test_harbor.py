"""Folders of Harbor: its own reader takes them, the oracle gets 1, who does nothing 0, and a failed desktop nothing."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from eval.export.__main__ import main
from tests.support.documented import ROOT
from tests.support.needs import lacking, need
from tests.support.serving import TOKEN, served

LOGIN: Final[dict[str, Any]] = {"environment": "login", "tasks": {"count": 2, "seed": 1000000}}
PLANTED: Final[dict[str, Any]] = {
    "environment": "tests.unit.eval.planted:PlantedEnvironment",
    "options": {"hole": "infra"},
    "tasks": {"count": 1, "seed": 0},
    "limits": {"attempts": 1},
}
READ: Final = """
import json, sys
from pathlib import Path
from harbor.models.task.task import Task
found = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    task = Task(folder)
    found[folder.name] = [Task.is_valid_dir(folder), task.instruction, task.config.environment.mcp_servers[0].url]
print(json.dumps(found))
"""


def exported(folder: Path, config: dict[str, Any], *options: str) -> list[Path]:
    """The folders of the tasks."""
    file = folder / "tasks.json"
    file.write_text(json.dumps(config))
    assert main(["harbor", str(file), str(folder / "tasks"), *options]) == 0
    return sorted((folder / "tasks").iterdir())


def typed(program: Path, url: str) -> subprocess.CompletedProcess[str]:
    """A program of a task, as Harbor's scripts start it."""
    environ = {"PATH": os.environ["PATH"], "SERVE_TOKEN": TOKEN, "DESKTOP_URL": url}
    return subprocess.run([sys.executable, program], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("solved", "score"), [(True, "1.0\n"), (False, "0.0\n")])
def test_the_oracle_gets_one_and_who_does_nothing_gets_zero(solved: bool, score: str, tmp_path: Path) -> None:
    task, _ = exported(tmp_path, LOGIN)
    with served("mcp", tmp_path, json.loads((task / "environment/serve.json").read_text())) as server:
        if solved:
            done = typed(task / "solution/solve.py", server.url)
            assert done.returncode == 0, done.stderr
        verdicts = [typed(task / "tests/verdict.py", server.url).stdout for _ in range(2)]
        again = typed(task / "solution/solve.py", server.url)  # there is no second try
        records = server.records()
    assert verdicts == [score, score]
    assert "the episode has ended" in again.stdout
    assert [(record.seed, record.trial, record.outcome) for record in records] == [(1000000, 0, "scored")]


def test_clients_share_the_one_episode_until_the_verdict(tmp_path: Path) -> None:
    task, _ = exported(tmp_path, LOGIN)
    calls = json.loads((task / "solution/calls.json").read_text())
    with served("mcp", tmp_path, json.loads((task / "environment/serve.json").read_text())) as server:
        for part in (calls[:2], calls[2:-1]):  # each by a client of its own; nobody says done
            (task / "solution/calls.json").write_text(json.dumps(part))
            assert typed(task / "solution/solve.py", server.url).returncode == 0
        assert typed(task / "tests/verdict.py", server.url).stdout == "1.0\n"
        (record,) = server.records()
    assert record.steps == len(calls)


def test_a_desktop_that_failed_has_no_reward(tmp_path: Path) -> None:
    with served("mcp", tmp_path, {**PLANTED, "shared": True}) as server:
        (task, _) = exported(tmp_path, LOGIN, "--no-solutions")
        done = typed(task / "tests/verdict.py", server.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert not (task / "solution").exists()


def test_a_folder_says_what_harbor_needs(tmp_path: Path) -> None:
    task, other = exported(tmp_path, LOGIN, "--image", "desks:7", "--base", "python:3.12")
    told = tomllib.loads((task / "task.toml").read_text())
    assert told["task"]["name"] == "slipway/login-1000000-1000000"
    assert told["verifier"]["env"] == told["solution"]["env"] == {"SERVE_TOKEN": "${SERVE_TOKEN}"}
    assert (task / "environment/desktop.Dockerfile").read_text().startswith("FROM desks:7\n")
    assert (task / "environment/Dockerfile").read_text().startswith("FROM python:3.12\n")
    assert stat.S_IMODE((task / "tests/test.sh").stat().st_mode) == 0o755
    assert (task / "instruction.md").read_text() != (other / "instruction.md").read_text()
    assert TOKEN not in "".join(path.read_text() for path in task.rglob("*") if path.is_file())


def test_a_plain_desktop_is_no_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain.json").write_text("{}")
    assert main(["harbor", str(tmp_path / "plain.json"), str(tmp_path / "out")]) == 78
    assert "tasks: is missing" in capsys.readouterr().err


@pytest.mark.nightly
def test_harbors_own_reader_takes_the_folders(tmp_path: Path) -> None:
    need("harbor")
    exported(tmp_path, LOGIN)
    command = [ROOT / ".venv-harbor/bin/python", "-c", READ, tmp_path / "tasks"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert list(found) == ["login-1000000-1000000", "login-1000001-1000001"]
    for valid, instruction, server in found.values():
        assert valid
        assert "Log in as" in instruction
        assert server == "http://desktop:8000/mcp"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_harbor_runs_a_task_with_docker(agent: str, reward: float, tmp_path: Path) -> None:
    need("harbor")
    for needed in ("compose ls", "image inspect linux-desktop:latest"):
        command = ["docker", *needed.split()]
        if not shutil.which("docker") or subprocess.run(command, capture_output=True, check=False).returncode:
            lacking("compose", f"docker {needed}")
    exported(tmp_path, {**LOGIN, "tasks": {"count": 1, "seed": 1000000}}, "--base", "linux-desktop:latest")
    command = [ROOT / ".venv-harbor/bin/harbor", "run", "-y", "-q", "-p", tmp_path / "tasks", "-a", agent]
    done = subprocess.run(
        [*command, "-o", tmp_path / "jobs", "--job-name", "job"],
        env={**os.environ, "SERVE_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (result,) = (tmp_path / "jobs/job").glob("*/result.json")
    assert json.loads(result.read_text())["verifier_result"]["rewards"] == {"reward": reward}
