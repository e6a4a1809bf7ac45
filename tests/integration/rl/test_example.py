"""examples/rl-login, rl-desktop and rl-gymnasium as a user runs them, with few episodes and steps: real processes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.support.desktops import need_desktops
from tests.support.verbs import launcher

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL = {
    "episodes:config.tasks.count": 20,
    "start:config.steps": 4,
    "start:config.warmup_steps": 1,
    "start:config.save_every": 2,
    "before:config.tasks.count": 10,
    "train:config.steps": 2,
    "train:config.warmup_steps": 1,
    "train:config.save_every": 1,
    "train:config.tasks_per_generation": 2,
    "train:config.group_size": 2,
    "after:config.tasks.count": 10,
}
LAKE = {name: value for name, value in SMALL.items() if not name.startswith("episodes")} | {
    "tries:config.tasks.count": 20,
}


def ran(folder: Path, example: str, jobs: str, small: dict[str, int]) -> dict[str, dict[str, str]]:
    """An example with few episodes and steps, each job of which has a name that begins with `jobs`: the row of success
    of each agent, by its name."""
    (folder / "slipway.yaml").write_text("store: store\nlocal: {state: state, cpus: 2}\n")
    try:
        options = [f"--set={jobs}-{name}={value}" for name, value in small.items()]
        launcher(folder, "submit", str(EXAMPLES / example), "--backend", "local", "--follow", *options)
        states = json.loads(launcher(folder, "status", "-o", "json"))
        table = launcher(folder, "results", f"{jobs}-before", f"{jobs}-after", "-o", "csv")
    finally:
        launcher(folder, "local", "stop")
    assert {run["state"] for run in states} == {"succeeded"}
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["metric"] == "success"]
    return {row["agent"]: row for row in rows}


def asked(rows: dict[str, dict[str, str]]) -> dict[str, str]:
    """How many tasks each agent was asked."""
    return {agent: row["n"] for agent, row in rows.items()}


@pytest.mark.nightly
@pytest.mark.ml
@pytest.mark.timeout(1200)
def test_a_model_is_taught_tries_for_itself_and_is_measured_before_and_after(tmp_path: Path) -> None:
    assert asked(ran(tmp_path, "rl-login", "rl", SMALL)) == {"start": "10", "trained": "10"}


@pytest.mark.nightly
@pytest.mark.ml
@pytest.mark.timeout(1800)
def test_the_same_on_real_desktops(tmp_path: Path) -> None:
    need_desktops()
    told = asked(ran(tmp_path, "rl-desktop", "rld", SMALL))
    assert told == dict.fromkeys(("start", "commonest", "nearest", "trained"), "10")


@pytest.mark.ml
@pytest.mark.timeout(1200)
def test_the_same_on_an_environment_of_gymnasium(tmp_path: Path) -> None:
    assert asked(ran(tmp_path, "rl-gymnasium", "rlg", LAKE)) == {"start": "10", "trained": "10"}
