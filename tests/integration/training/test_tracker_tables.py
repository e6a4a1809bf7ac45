"""A table with pictures in each tracker, offline, read back by the tracker's own reader."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
from PIL import Image

from tests.support.needs import marked

ROOT: Final = Path(__file__).resolve().parents[3]
PYTHON: Final = ROOT / ".venv-trackers/bin/python"
WANTED: Final = [
    [3, f"login-{number}", number / 2, bool(number), "click(1)\ndone | now", [200 * number, 10, 20]]
    for number in (0, 1)
]


@pytest.mark.nightly
@pytest.mark.timeout(900)
@marked("trackers")
@pytest.mark.parametrize("tracker", ["wandb", "trackio", "mlflow"])
def test_a_table_is_read_back_from_the_trackers_own_files(tracker: str, tmp_path: Path) -> None:
    settings = {
        "PYTHONPATH": str(ROOT),
        "WANDB_DIR": str(tmp_path),
        "WANDB_DATA_DIR": str(tmp_path / "data"),
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "MLFLOW_TRACKING_URI": f"file:{tmp_path}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "HF_HUB_OFFLINE": "1",
    }
    script = ROOT / "tests/integration/training/table_of_rollouts.py"
    done = subprocess.run(
        [str(PYTHON), str(script), tracker],
        cwd=tmp_path,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("READ ")]
    assert json.loads(line.removeprefix("READ ")) == WANTED


@pytest.mark.ml
def test_tensorboard_has_the_texts_and_each_picture(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]
    from torch.utils.tensorboard import SummaryWriter

    from training.common.trackers import TABLES

    rows = [{"task": "a | b", "return": 0.5, "last": Image.new("RGB", (8, 6), (9, 8, 7))}]
    writer = SummaryWriter(str(tmp_path))
    TABLES["TensorBoardCallback"](SimpleNamespace(tb_writer=writer), "rollouts", rows, 3)
    writer.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    (picture,) = read.Images("rollouts/0/last")
    assert (picture.step, picture.width, picture.height) == (3, 8, 6)
    (text,) = read.Tensors("rollouts/text_summary")
    assert b"| a \\| b | 0.5 |" in text.tensor_proto.string_val[0]
