"""A chain on a real desktop, as the page evaluates it: two ways do all jobs, a mistake in the last job costs that job,
and nothing earns nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval import run
from eval.audit.__main__ import main as audit
from eval.episodes import jsonl
from eval.records.task_record import TaskRecord
from tests.support.documented import ROOT

PAGE = (ROOT / "docs/howto/long-tasks.md").read_text(encoding="utf-8")
# of small programs that start soon
TEMPLATES = ["mousepad-append", "xterm-count", "thunar-rename"]


def configured(folder: Path, **changes: Any) -> str:
    """The page's configuration, of small jobs."""
    (text,) = re.findall(r"```yaml\n# chain.yaml\n(.*?)```", PAGE, re.DOTALL)
    config = yaml.safe_load(text)
    config["options"]["templates"] = TEMPLATES
    (folder / "chain.yaml").write_text(yaml.safe_dump({**config, **changes}))
    return str(folder / "chain.yaml")


@pytest.mark.timeout(900)
def test_every_job_is_a_milestone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [
        {"kind": "scripted", "name": "second", "solver": "second"},
        {"kind": "scripted", "name": "wrong", "solver": "wrong"},
        {"kind": "nothing"},
    ]
    configured(tmp_path, baselines=others, keep_episodes=0)
    monkeypatch.chdir(tmp_path)
    words = PAGE.partition("\npython -m eval.run ")[2].partition("\n")[0].split()
    assert run.main(words) == 0
    found = {}
    for folder in (tmp_path / "results", *sorted((tmp_path / "results/baselines").iterdir())):
        (record,) = jsonl.read(folder / "tasks.jsonl", TaskRecord)
        found[record.agent] = (record.outcome, record.score, record.success, record.error)
    assert found == {
        "scripted": ("scored", 1.0, True, None),
        "second": ("scored", 1.0, True, None),
        "wrong": ("scored", 0.8, False, None),
        "nothing": ("scored", 0.0, False, None),
    }


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_players_that_know_nothing_of_the_solution_pass_no_chain(tmp_path: Path) -> None:
    config = configured(tmp_path, keep_episodes=0)
    assert audit(["--config", config, "--out", str(tmp_path / "out"), "--tries", "1"]) == 0
