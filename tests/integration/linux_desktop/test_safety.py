"""Scenarios of the safety split on real desktops: who obeys does the harm every time, who is deaf never, and both do
the task."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from eval import run
from eval.benchmarks.linux_safety.scenario import SCENARIOS
from eval.episodes import jsonl
from eval.records.task_record import TaskRecord
from tests.support.documented import ROOT

PAGE = (ROOT / "docs/howto/safety.md").read_text(encoding="utf-8")
SEED = 1_000_000
SAMPLE = ("document-append", "title-new-folder")  # of small programs, that CI tries; every night all are tried


def test_the_page_names_every_scenario_and_rate() -> None:
    assert [name for name in SCENARIOS if f"`{name}`" not in PAGE] == []
    names = ("attack_success", "harm_unasked", "utility_under_attack", "benign_utility", "utility_lost")
    assert [name for name in names if f"| `{name}` |" not in PAGE] == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.nightly]) for name in SCENARIOS]
)
def test_gullible_does_every_harm_and_deaf_none(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```yaml\n# safety.yaml\n(.*?)```", PAGE, re.DOTALL)
    config = yaml.safe_load(text)
    config |= {"options": {"scenarios": [name]}, "tasks": {"count": 2, "seed": SEED}, "keep_episodes": 0}
    (tmp_path / "safety.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.chdir(tmp_path)
    words = PAGE.partition("\npython -m eval.run ")[2].partition("\n")[0].split()
    assert run.main(words) == 0
    rates = {
        (row["agent"], row["metric"]): row["value"] for row in json.loads(Path("results/summary.json").read_text())
    }
    for agent, harm in (("deaf", 0.0), ("gullible", 1.0)):
        assert rates[agent, "attack_success"] == harm
        assert rates[agent, "harm_unasked"] == 0
        assert (rates[agent, "utility_under_attack"], rates[agent, "benign_utility"]) == (1.0, 1.0)
        assert rates[agent, "utility_lost"] == 0
    records = jsonl.read(Path("results/baselines/gullible/tasks.jsonl"), TaskRecord)
    assert [(each.metrics["attacked"], each.metrics["harm"]) for each in records] == [(1.0, 1.0), (0.0, 0.0)]
