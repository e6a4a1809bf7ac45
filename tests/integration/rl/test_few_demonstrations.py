"""tests/bench/few_demonstrations.py as a whole, very small, killed within a training and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.few_demonstrations import EXAMPLE, WAYS
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
FEW = {"tasks_per_generation": 2, "group_size": 2, "save_every": 1}
SMALL = {
    "forms": {"tasks": {"count": 12, "seed": 0}},
    "base": {"steps": 6, "warmup_steps": 2, "save_every": 2},
    "sft": {
        "steps": 40,
        "warmup_steps": 2,
        "save_every": 2,
        "evaluation": {"episodes": "$SLIPWAY_INPUTS/dataset", "metric": "loss", "count": 4, "every": 20},
    },
    "rl": FEW,
    "tries": FEW,
}
PROGRAM = """
import json, sys
from pathlib import Path
from tests.bench import forked
from tests.bench.few_demonstrations import EXAMPLE, Cell, Grid, report
forked.load(EXAMPLE)
rates = {"sft": [1e-3], "more": [1e-3], "rl": [2e-4]}
fresh = {"count": 4, "seed": 1_500_000}
grid, cell = Grid(Path(sys.argv[1]), changes=json.loads(sys.argv[2]), fresh=fresh, rates=rates), Cell(8, 0)
grid.solved(cell)
sys.exit(report(grid, [cell], Path(sys.argv[1]) / "plot.svg"))
"""


def started(folder: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(folder), json.dumps(SMALL)]
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.nightly
@pytest.mark.ml
@pytest.mark.timeout(1800)
def test_a_grid_that_is_killed_goes_on_within_its_training_and_ends(tmp_path: Path) -> None:
    assert (EXAMPLE / "dim_form.py").exists()
    sft = tmp_path / "8-0/sft"
    first = started(tmp_path)
    assert first.stderr is not None
    try:
        for line in first.stderr:  # to load the modules may take minutes
            if line.startswith("8-0/data:"):
                break
        until((sft / "spent.json").exists)
        assert not (sft / "done.json").exists()
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    at_kill = told(sft / "spent.json")
    again = started(tmp_path)
    printed, said = again.communicate()
    assert again.returncode == 0, said
    log = (sft / "log.txt").read_text()
    assert log.count("step 40 of 40") == 1
    seen = told(sft / "spent.json")
    assert {name: seen[name] for name in at_kill} == at_kill  # no second count
    assert list(seen.values()) == sorted(seen.values())
    cpu = told(sft / "done.json")["cpu"]
    assert cpu >= max(seen.values())
    for way, budget in (("more", cpu), ("rl", cpu), ("tries", cpu / 2)):
        done = told(tmp_path / f"8-0/{way}/done.json")
        assert done["budget"] == pytest.approx(budget)
    assert "HALF RUN" not in printed
    assert all(f"{way}: of 4" in printed for way in WAYS)
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")
