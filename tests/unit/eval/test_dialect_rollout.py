"""An agent that answers in any of the dialects solves the login through `eval.run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval import run
from eval.actions.dialects.registry import DIALECTS
from eval.episodes import iter_episodes, jsonl
from eval.rollout.loop import TaskRecord

PLACES = ("place", "place-1000")  # which only say where something is


def evaluated(name: str, tmp_path: Path) -> tuple[int, Path]:
    config = {
        "environment": "login",
        "benchmark": "login",
        "tasks": {"count": 2, "seed": 1_000_000},
        "agent": {"kind": "scripted"},
        "prompt": {"dialect": name},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    out = tmp_path / "results"
    return run.main(["--config", str(tmp_path / "config.json"), "--out", str(out)]), out


@pytest.mark.parametrize("name", [name for name in DIALECTS if name not in PLACES])
def test_the_login_is_solved_in_every_dialect(name: str, tmp_path: Path) -> None:
    code, out = evaluated(name, tmp_path)
    assert code == 0
    assert [record.score for record in jsonl.read(out / "tasks.jsonl", TaskRecord)] == [1.0, 1.0]
    for _, episode in iter_episodes(out / "episodes"):
        assert episode.steps
        assert all(step.parse_error is None for step in episode.steps)


@pytest.mark.parametrize("name", PLACES)
def test_a_dialect_without_the_expert_s_actions_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = evaluated(name, tmp_path)
    told = capsys.readouterr().err
    assert (code, told.count("\n")) == (78, 1)
    where = f"config: {tmp_path}/config.json:1: prompt.dialect: "
    assert told.startswith(f"{where}agent scripted cannot write its action in it: ")
