"""The code that people recorded, given as answers, scores what the benchmark's own parser and scorer give.

`agentnetbench_public_scores.json` holds the steps and, as `public`, what the published code gave for them in November
2026: the parser of AgentNetBench/agent/opencua.py, v1 by AgentNetBench/eval.py (commit 913e21e), v2 by
evaluation/agentnetbench/eval.py (commit 60da8b9), all of xlang-ai/OpenCUA. `ours` and `why` stand where we differ.
The published samples have two names each; those with an address in theirs are named here by the end of their id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from eval.actions.dialects.pyautogui import PyAutoGui
from eval.benchmarks.agentnetbench.data import load_trajectory
from eval.benchmarks.agentnetbench.score import VERSIONS, predicted_acts, step_score

HERE: Final = Path(__file__)
TRAJECTORIES: Final = json.loads(HERE.with_name("agentnetbench_public_scores.json").read_text(encoding="utf-8"))
PAGE: Final = HERE.parents[3] / "docs/reference/formats.md"


def scored(trajectory: dict[str, Any], folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    """(step, our score of its own code by version), read as a file of the benchmark."""
    steps = [{**step, "image": "none.png"} for step in trajectory["steps"]]
    path = folder / "trajectory.json"
    path.write_text(json.dumps({"task_id": "t", "high_level_task_description": "g", "steps": steps}))
    for raw, step in zip(trajectory["steps"], load_trajectory(path, folder).steps, strict=True):
        predicted = predicted_acts(f"## Code:\n{step.code}", PyAutoGui())
        yield raw, {version: step_score(step, predicted, version).total for version in VERSIONS}


@pytest.mark.parametrize("trajectory", TRAJECTORIES, ids=lambda trajectory: trajectory["trajectory"])
def test_recorded_code_scores_what_the_public_scorer_gives(trajectory: dict[str, Any], tmp_path: Path) -> None:
    for step, ours in scored(trajectory, tmp_path):
        expected = step.get("ours", step["public"])
        assert ours == pytest.approx(expected, abs=1e-6), (step["step_num"], step["action"])
        assert ("why" in step) == (expected != step["public"])


def test_the_page_shows_these_scores(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for trajectory in TRAJECTORIES:
        steps = list(scored(trajectory, tmp_path))
        if trajectory["trajectory"] == "differences":
            rows = [
                f"| `{step['action']}` | {step['public']['v1']:.3f} | {ours['v1']:.3f} | {step['why']} |"
                for step, ours in steps
            ]
        else:
            means = [
                sum(scores) / len(steps)
                for version in VERSIONS
                for scores in ([step["public"][version] for step, _ in steps], [ours[version] for _, ours in steps])
            ]
            cells = " | ".join(f"{mean:.3f}" for mean in means)
            rows = [f"| {trajectory['trajectory']} | {trajectory['source']} | {len(steps)} | {cells} |"]
        for row in rows:
            assert f"{row}\n" in page


def test_the_published_samples_score_what_others_measured(tmp_path: Path) -> None:
    """0.993 for the 54 steps is the public scorer's figure, measured apart from the table's values."""
    samples = {"s_a96285eb665bef92", "s_df0fd37049f470c2", "s_5473959e0f6e21f7", "081e87e5", "118ad264"}
    totals = [
        ours["v1"]
        for trajectory in TRAJECTORIES
        if trajectory["trajectory"] in samples
        for _, ours in scored(trajectory, tmp_path)
    ]
    assert len(totals) == 54
    assert sum(totals) / 54 == pytest.approx(0.993, abs=5e-4)
