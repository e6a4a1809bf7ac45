"""A training whose policy stops solving anything ends, and does not go on when it is started again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.results.training_records import RlRollout, RlStatus, read_folder
from tests.integration.rl.conftest import rl_config
from tests.integration.rl.test_training import newest, written
from training.common.entry import read_state
from training.rl.train import main

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
TRIES = 8  # of a generation


def test_a_collapse_ends_the_training_with_its_reason(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Generations 0 to 4 succeed as a whole, 5 to 9 not at all; the ninth is the tenth. A process of its own, so that
    the exit code is the one that a runtime sees."""
    options = {"count": str(tmp_path / "count"), "good": 5 * TRIES}
    world = {"environment": "tests.integration.rl.worlds:Spoilt", "options": options}
    config = rl_config(start, steps=12, **world)
    words = ["--config", str(written(config, tmp_path)), "--out", str(tmp_path)]
    command = [sys.executable, "-m", "training.rl", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 78, ended.stderr
    told = "collapse: 0 of 40 rollouts succeeded in the generations 5 to 9, and 40 of 40 in 0 to 4"
    assert f"{told}; the checkpoint before is checkpoints/checkpoint-4. To go on:" in ended.stderr
    reason = json.loads((tmp_path / "results" / "collapse.json").read_text())  # of which `launcher notify` tells
    assert (reason["step"], reason["checkpoint_before"]) == (9, "checkpoints/checkpoint-4")
    # checkpoint-5 is the policy of generation 5, the first that failed
    assert reason["text"] == told.removeprefix("collapse: ")
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "model").exists()
    assert {f"checkpoint-{step}" for step in range(4, 10)} <= {
        each.name for each in (tmp_path / "checkpoints").iterdir()
    }
    lines = read_folder(tmp_path / "results")
    assert max(line.step for line in lines if isinstance(line, RlRollout)) == 10  # what ended it is recorded
    last = [line for line in lines if isinstance(line, RlStatus)][-1]
    assert last.status == "failed"
    assert last.reason is not None
    assert last.reason.startswith(told)

    found = newest(tmp_path)
    assert found is not None
    assert read_state(str(found))["global_step"] == 9
    assert main([*words, "--resume", str(found)]) == 78
    assert told in capsys.readouterr().err
    assert (tmp_path / "count").stat().st_size == 11 * TRIES  # it played the tenth generation again, and no more


def test_a_training_may_go_on(start: Path, tmp_path: Path) -> None:
    options = {"count": str(tmp_path / "count"), "good": 5 * TRIES}
    config = rl_config(start, steps=10, environment="tests.integration.rl.worlds:Spoilt", options=options)
    file = written(config, tmp_path)
    file.write_text(file.read_text() + "collapse: null\n")
    assert main(["--config", str(file), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "model").exists()
