"""The stored answers are those of trainings with each argument of TRL and without it: one process for each trainer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ml, pytest.mark.nightly]
TABLE = Path(__file__).parents[2] / "data" / "trl_answers.json"
SCRIPT = """
import json, sys
from tests.integration.training.trl_answers import answers
json.dump(answers(sys.argv[1]), open(sys.argv[2], "w"))
"""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("method", ["sft", "dpo", "reward", "grpo", "rl"])
def test_every_argument_does_what_the_table_says(method: str, tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT, method, str(file)], check=True)
    stored = json.loads(TABLE.read_text(encoding="utf-8"))[method]
    for name, found in json.loads(file.read_text(encoding="utf-8")).items():
        assert stored[name].partition("; ")[0] == found.partition("; ")[0], name  # lines of TRL move
