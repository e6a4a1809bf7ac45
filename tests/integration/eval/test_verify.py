"""What was played on real desktops is played again on others: it gets the same scores, and a forged action does not."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from eval import run, verify
from eval.verify import Verification
from tests.support.needs import need

pytestmark = [pytest.mark.ci, pytest.mark.timeout(600)]


def test_real_desktops_give_the_same_scores_again(tmp_path: Path) -> None:
    need("desktop")
    config = tmp_path / "config.json"
    told = {
        "benchmark": "notes",
        "environment": "desktop",
        "options": {"tree": False},
        "tasks": {"count": 3, "seed": 1_000_000},
        "agent": {"kind": "scripted"},
        "limits": {"concurrency": 2},
    }
    config.write_text(json.dumps(told))
    results = tmp_path / "results"
    assert run.main(["--config", str(config), "--out", str(results)]) == 0

    def verified(out: str) -> tuple[int, list[str]]:
        words = [str(results), "--config", str(config), "--out", str(tmp_path / out)]
        code = verify.main(words)
        report = msgspec.json.decode((tmp_path / out / "verified.json").read_bytes(), type=Verification)
        return code, [task.verdict for task in report.tasks]

    assert verified("honest") == (0, ["stands"] * 3)
    steps = sorted(results.glob("episodes/*/steps.jsonl"))[1]
    lines = [json.loads(line) for line in steps.read_text().splitlines()]
    typed = next(line for line in lines if line["action"]["type"] == "type")
    typed["action"]["text"] += "!"
    steps.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert verified("forged") == (1, ["stands", "differs", "stands"])
