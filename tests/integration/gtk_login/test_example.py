"""examples/gtk-login as a user runs it, with few episodes and steps: real processes, real desktops."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.support.verbs import launcher

EXAMPLE = Path(__file__).parents[3] / "examples" / "gtk-login"
SMALL = {
    "episodes:config.tasks.count": 20,
    "before:config.tasks.count": 10,
    "sft:config.steps": 4,
    "sft:config.warmup_steps": 1,
    "sft:config.save_every": 2,
    "after:config.tasks.count": 10,
}


@pytest.mark.nightly
@pytest.mark.ml
@pytest.mark.timeout(1200)
def test_episodes_become_a_model_that_is_measured_beside_every_baseline(tmp_path: Path) -> None:
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state, cpus: 2}\n")
    try:
        options = [f"--set=gtkl-{name}={value}" for name, value in SMALL.items()]
        launcher(tmp_path, "submit", str(EXAMPLE), "--backend", "local", "--follow", *options, timeout=1100)
        states = json.loads(launcher(tmp_path, "status", "-o", "json"))
        table = launcher(tmp_path, "results", "gtkl-before", "gtkl-after", "-o", "csv")
    finally:
        launcher(tmp_path, "local", "stop")
    assert {run["state"] for run in states} == {"succeeded"}
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["metric"] == "success"]
    agents = ("untrained", "nothing", "random", "commonest", "nearest", "trained")
    assert {row["agent"]: row["n"] for row in rows} == dict.fromkeys(agents, "10")
