"""examples/gtk-forms as a user runs them, with few episodes and steps: real processes, real desktops."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.verbs import launcher

EXAMPLES = Path(__file__).parents[3] / "examples" / "gtk-forms"
TRAINING = {"steps": 4, "warmup_steps": 1, "save_every": 2}


def ran(folder: Path, example: str, training: str, evaluations: Sequence[str]) -> dict[str, str]:
    """The run of an example with few episodes and steps: success by the agent's name."""
    (folder / "slipway.yaml").write_text("store: store\nlocal: {state: state, cpus: 2}\n")
    settings = {"forms-episodes:config.tasks.count": 20}
    settings |= {f"{training}:config.{name}": value for name, value in TRAINING.items()}
    settings |= {f"{name}:config.tasks.count": 10 for name in evaluations}
    try:
        options = [f"--set={name}={value}" for name, value in settings.items()]
        launcher(folder, "submit", str(EXAMPLES / example), "--backend", "local", "--follow", *options)
        states = json.loads(launcher(folder, "status", "-o", "json"))
        table = launcher(folder, "results", *evaluations, "-o", "csv")
    finally:
        launcher(folder, "local", "stop")
    assert {run["state"] for run in states} == {"succeeded"}
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["metric"] == "success"]
    assert all(row["n"] == "10" for row in rows), "every task stays in the denominator"
    return {row["agent"]: row["value"] for row in rows}


@pytest.mark.nightly
@pytest.mark.ml
@pytest.mark.timeout(1200)
def test_episodes_become_a_model_that_is_measured_before_and_after(tmp_path: Path) -> None:
    agents = ran(tmp_path, "loop.yaml", "forms-sft", ["forms-before", "forms-after"])
    assert set(agents) >= {"untrained", "commonest", "nearest", "trained"}


@pytest.mark.nightly
@pytest.mark.ml
@pytest.mark.timeout(1200)
def test_a_model_is_asked_with_four_kinds_of_demonstrations(tmp_path: Path) -> None:
    names = ["shown-none", "shown-right", "shown-control", "shown-wrong"]
    assert set(ran(tmp_path, "demonstrations.yaml", "shown-sft", names)) == {"none", "right", "control", "wrong"}
