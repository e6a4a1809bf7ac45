"""An agent that answers in any of the dialects solves the login through `eval.run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval import run
from eval.actions.dialects.registry import DIALECTS
from eval.episodes import iter_episodes, jsonl
from eval.rollout import TaskRecord


@pytest.mark.parametrize("name", DIALECTS)
def test_the_login_is_solved_in_every_dialect(name: str, tmp_path: Path) -> None:
    config = {
        "environment": "login",
        "benchmark": "login",
        "tasks": {"count": 2, "seed": 1_000_000},
        "agent": {"kind": "scripted"},
        "prompt": {"dialect": name},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    out = tmp_path / "results"
    assert run.main(["--config", str(tmp_path / "config.json"), "--out", str(out)]) == 0
    assert [record.score for record in jsonl.read(out / "tasks.jsonl", TaskRecord)] == [1.0, 1.0]
    for _, episode in iter_episodes(out / "episodes"):
        assert episode.steps
        assert all(step.parse_error is None for step in episode.steps)
