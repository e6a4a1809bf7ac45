"""Evaluations of tasks of OSWorld's format, as a user starts them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eval.config import EXIT_CONFIG
from tests.integration.osworld.playing import JUDGE, need_judge
from tests.support.desktops import need_isolation
from tests.support.osworld_tasks import OS, OwnTask, printed, rule, step, written

BY_NAME = {task.name: task for task in OS}
INFEASIBLE = BY_NAME["os/no-such-account"]
CONFIG = """
benchmark: osworld
environment: osworld
tasks: {{count: {count}, seed: 0}}
agent: {{kind: nothing}}
options: {{folder: tasks, list: list.json, judge: "{judge}", screen: [640, 480]}}
limits: {{attempts: 1}}
"""


def ended(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True)


def evaluated(folder: Path, count: int) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    (folder / "config.yaml").write_text(CONFIG.format(count=count, judge=JUDGE))
    done = ended(folder, "eval.run", "--config", "config.yaml", "--out", "results")
    records = folder / "results/tasks.jsonl"
    return done, [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []


def test_results_tell_the_task_files_and_a_task_that_lacks_something_is_no_score(tmp_path: Path) -> None:
    need_isolation()
    lacking = dataclasses.replace(
        INFEASIBLE,
        name="os/lacking",
        config=[step("launch", command=["no-such-program"])],
        evaluator={"func": "infeasible"},
    )
    written(tmp_path / "tasks", [lacking, INFEASIBLE])
    (tmp_path / "list.json").write_text(json.dumps({"os": ["no-such-account", "lacking", "gone"]}))
    done, records = evaluated(tmp_path, 2)
    assert done.returncode == 0, done.stderr
    assert [(each["task_id"], each["outcome"], each["score"]) for each in records] == [
        ("os/no-such-account", "scored", 0.0),
        ("os/lacking", "not run", None),
    ]
    assert records[1]["error"] == "missing dependency: program no-such-program"
    told = records[0]["rules"]["options"]
    assert told["stale"] == ["os/gone"]
    assert len(told["revision"]) == 12
    assert told["evaluators"] in (None, "desktop-env 1.0.2")

    # another edition of a task is never mixed with the old one: it is judged anew, and the old line is kept apart
    written(tmp_path / "tasks", [dataclasses.replace(INFEASIBLE, instruction="Log in as Ada.")])
    done, again = evaluated(tmp_path, 2)
    assert done.returncode == 0, done.stderr
    assert [each["task_id"] for each in again] == [each["task_id"] for each in records]
    assert again[0]["content"] != records[0]["content"]
    assert again[1]["content"] == records[1]["content"]
    assert again[0]["rules"]["options"]["revision"] != told["revision"]
    (kept,) = (json.loads(line) for line in (tmp_path / "results" / "replaced.jsonl").read_text().splitlines())
    assert (kept["task_id"], kept["content"]) == (records[0]["task_id"], records[0]["content"])


def test_what_is_wrong_in_a_configuration_is_one_line(tmp_path: Path) -> None:
    for found in (
        "options.folder: tasks: no such folder",
        "options.list: none of its 1 tasks can be read; os/gone: in the list, and no file has it",
    ):
        (tmp_path / "list.json").write_text('{"os": ["gone"]}')
        done, _ = evaluated(tmp_path, 1)
        assert done.returncode == EXIT_CONFIG
        assert found in done.stderr
        assert "Traceback" not in done.stderr
        written(tmp_path / "tasks", [INFEASIBLE])


def faulty() -> list[OwnTask]:
    """Tasks that are judged, cannot be set up, and are solved before anybody acts."""
    folders = BY_NAME["os/make-folders"]
    solved = {"func": "exact_match", "result": printed("echo yes"), "expected": rule("yes\n")}
    failing = [
        step("execute_with_verification", command="true", verification={"command_success": "false"}, max_wait_time=1)
    ]
    return [
        INFEASIBLE,
        dataclasses.replace(folders, name="os/solved", config=[], evaluator=solved),
        dataclasses.replace(folders, name="os/unprepared", config=failing),
    ]


def test_what_cannot_be_evaluated_is_found_without_an_agent(tmp_path: Path) -> None:
    need_judge()
    written(tmp_path / "tasks", faulty())
    done = ended(tmp_path, "eval.osworld", "try", "tasks", "--judge", str(JUDGE), "--out", "results")
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert [line.split(",")[0].split() for line in lines[:3]] == [
        ["os/no-such-account", "score", "0"],
        ["os/solved", "score", "1"],
        ["os/unprepared", "infra"],
    ]
    assert "2 judged, of 3 that can run, of 3 tasks" in lines
    (solved, unprepared) = [line for line in lines if line.startswith("fault: ")]
    assert solved == "fault: os/solved: solved while nobody acted"
    assert "SetupFailed: step 1 of 1, execute_with_verification" in unprepared


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_our_tasks_are_set_up_and_judged_while_nobody_acts(tmp_path: Path) -> None:
    """Those without downloads: the address of the others is a server's of another test."""
    need_judge()
    own = [task for task in OS if not task.files]
    written(tmp_path / "tasks", own)
    done = ended(tmp_path, "eval.osworld", "try", "tasks", "--judge", str(JUDGE), "--out", "results")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(" score 0, ") == len(own)
