"""Inspect evaluates agents on our tasks by the example: its scores are the checker's, and failures are no scores."""

from __future__ import annotations

import json
import os
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
LOGIN: Final[dict[str, Any]] = {"environment": "login", "tasks": {"count": 6, "seed": 1000000}}


def ran(folder: Path, who: str, config: dict[str, Any]) -> tuple[dict[str, Any], list[TaskRecord]]:
    """What Inspect's log tells, and our records of the same episodes."""
    need("clients")
    clients = next((ROOT / ".venv-clients/lib").glob("python*")) / "site-packages"
    (folder / "config.json").write_text(json.dumps(config))
    words = [clients, folder / "config.json", folder / "served", who]
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.serve.inspect_run", *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "INSPECT_DISPLAY": "none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("told: "))
    told = json.loads(line.removeprefix("told: "))
    return told, jsonl.read(folder / "served" / "tasks.jsonl", TaskRecord)


def test_the_expert_solves_every_task_and_its_episodes_are_ours(tmp_path: Path) -> None:
    told, records = ran(tmp_path, "expert", {**LOGIN, "limits": {"concurrency": 2}})  # Inspect begins six at once
    assert (told["status"], told["mean"]["mean"]) == ("success", 1.0)
    assert {(f"{record.task_id}/{record.seed}", record.score) for record in records} == {
        (name, value) for name, (value, _, _) in told["samples"].items()
    }
    assert len(records) == 6
    for record in records:
        assert told["samples"][f"{record.task_id}/{record.seed}"][1]["steps"] == record.steps
        episode = read_episode(tmp_path / "served" / str(record.episode))
        assert episode.success
        assert len(episode.steps) > 2
    assert min(told["pictures"]) == 1
    assert max(told["pictures"]) == max(record.steps for record in records)  # one more with each answer


@pytest.mark.parametrize(("who", "steps"), [("nothing", 1), ("silent", 2)])
def test_who_does_nothing_solves_nothing(tmp_path: Path, who: str, steps: int) -> None:
    told, records = ran(tmp_path, who, {**LOGIN, "limits": {"parse_failures": 2}})
    assert (told["status"], told["mean"]["mean"]) == ("success", 0.0)
    assert [(record.outcome, record.steps, record.score) for record in records] == [("scored", steps, 0.0)] * 6


def test_what_the_infrastructure_failed_is_an_error_and_no_score(tmp_path: Path) -> None:
    world = {"environment": "tests.unit.eval.planted:PlantedEnvironment", "options": {"hole": "infra"}}
    limits = {"attempts": 1, "backoff": 0.0}
    told, records = ran(tmp_path, "nothing-there", {**world, "tasks": {"count": 2, "seed": 0}, "limits": limits})
    assert told["status"] == "error"
    assert "no such machine" in told["error"]
    assert {value for value, _, _ in told["samples"].values()} == {None}
    assert {record.outcome for record in records} == {"infra"}
