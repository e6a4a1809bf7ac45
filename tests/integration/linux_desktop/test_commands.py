"""The commands of docs/howto/benchmark.md, as they stand but for the number of templates."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eval.benchmarks.linux_desktop import environment
from eval.benchmarks.linux_desktop.all_templates import TEMPLATES
from eval.benchmarks.linux_desktop.measuring import PLAYERS, Measured, Played
from eval.linux_desktop import table
from tests.support.documented import ROOT, blocks

PAGE = "docs/howto/benchmark.md"


def typed(start: str) -> list[str]:
    """The command of the page that begins so, as words."""
    lines = [each.line for block in blocks(ROOT / PAGE) for each in block]
    (line,) = [line for line in lines if line.startswith(start)]
    return [sys.executable, *line.split("#")[0].split()[1:]]


@pytest.mark.timeout(600)
def test_the_oracle_runs_the_example(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    done = subprocess.run(typed(".venv/bin/python -m eval.run"), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "results/tasks.jsonl").read_text().splitlines()]
    assert [(each["outcome"], each["score"], each["success"]) for each in records] == [("scored", 1.0, True)] * 4
    assert len({each["cluster"] for each in records}) == 4


def test_a_task_set_is_written_and_taken(tmp_path: Path) -> None:
    command = typed(".venv/bin/python -m eval.linux_desktop --write")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    taken = environment.tasks(3 * len(TEMPLATES), 0, {"files": str(tmp_path / "task-set")})
    assert len({(task.task_id, task.seed) for task in taken}) == 3 * len(TEMPLATES)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_all_players_do_what_they_must_on_one_template(tmp_path: Path) -> None:
    command = [*typed(".venv/bin/python -m eval.linux_desktop --seeds"), "mousepad-append"]
    command[command.index("3")] = "1"
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    header, row, *_ = done.stdout.splitlines()
    assert header.split()[2:] == list(PLAYERS)
    assert row.split() == ["mousepad-append", "easy", "1/1", "1/1", *["0/1"] * 5, "1/1"]


def test_what_is_wrong_is_one_line() -> None:
    for words, error in (
        (["emacs"], "options.templates: 'emacs' is unknown; allowed: "),
        (["--seeds", "0"], "--seeds: invalid positive value: '0'"),
        (["--players", "bob"], "invalid choice: 'bob'"),
    ):
        command = [sys.executable, "-m", "eval.linux_desktop", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 2
        assert error in done.stderr
        assert "Traceback" not in done.stderr


def test_faults_are_told_and_infrastructure_is_no_score() -> None:
    def played(player: str, score: float | None, template: str = "mousepad-append") -> Played:
        return Played(template, 1, player, score, score == 1.0, 1.0, "" if score is not None else "DesktopGone: x")

    good = [played("oracle", 1.0), played("wrong", 0.0), played("gives-up", 1.0, "mousepad-no-such-line")]
    assert Measured(good).faults == []
    bad = [played("oracle", 0.5), played("hacker", 0.3), played("nothing", None), played("random", 1.0)]
    assert Measured(bad).faults == [
        "mousepad-append with seed 1: oracle did not solve it",
        "mousepad-append with seed 1: hacker got 0.3",
        "mousepad-append with seed 1: nothing: DesktopGone: x",
        "random solved 1 of 1",
    ]
    lines = table(Measured(bad)).splitlines()
    assert lines[1].split() == ["mousepad-append", "easy", "0/1", "infra", "0/1", "1/1"]
    assert "oracle    all tasks: 0 of 1 solved, 0.0 % (0.0 to 79.3); mean score 0.500" in lines
