"""examples/rl-login as a user runs it, with few episodes and steps: real processes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.support.verbs import launcher

EXAMPLE = Path(__file__).parents[3] / "examples" / "rl-login"
SMALL = {
    "rl-episodes:config.tasks.count": 20,
    "rl-start:config.steps": 4,
    "rl-start:config.warmup_steps": 1,
    "rl-start:config.save_every": 2,
    "rl-before:config.tasks.count": 10,
    "rl-train:config.steps": 2,
    "rl-train:config.warmup_steps": 1,
    "rl-train:config.save_every": 1,
    "rl-train:config.tasks_per_generation": 2,
    "rl-train:config.group_size": 2,
    "rl-after:config.tasks.count": 10,
}


@pytest.mark.ml
@pytest.mark.timeout(1200)
def test_a_model_is_taught_tries_for_itself_and_is_measured_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state, cpus: 2}\n")
    try:
        options = [f"--set={name}={value}" for name, value in SMALL.items()]
        launcher(tmp_path, "submit", str(EXAMPLE), "--backend", "local", "--follow", *options)
        states = json.loads(launcher(tmp_path, "status", "-o", "json"))
        table = launcher(tmp_path, "results", "rl-before", "rl-after", "-o", "csv")
    finally:
        launcher(tmp_path, "local", "stop")
    assert {run["state"] for run in states} == {"succeeded"}
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["metric"] == "success"]
    assert {row["agent"]: row["n"] for row in rows} == {"start": "10", "trained": "10"}
