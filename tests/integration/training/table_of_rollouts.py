"""Run by tests/integration/training/test_tracker_tables.py in the trackers' own environment, with one tracker's name:
begins a run as transformers' callback does, sends a table, ends the run, and prints what the tracker's reader finds.

`WandbCallback` and the others stand for transformers' callbacks, of which a table takes the module alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from PIL import Image

from training.common.trackers import TABLES

ROWS = [
    {
        "step": 3,
        "task": f"login-{number}",
        "return": number / 2,
        "success": bool(number),
        "answers": "click(1)\ndone | now",
        "last": Image.new("RGB", (8, 6), (200 * number, 10, 20)),
    }
    for number in (0, 1)
]


class Callback:
    """What a table takes of transformers' callback of a tracker."""

    def __init__(self, **modules: Any) -> None:
        self.__dict__ |= modules


def picture(file: Path) -> list[int]:
    return list(Image.open(file).convert("RGB").getpixel((0, 0)))  # type: ignore[arg-type]


def wandb() -> list[Any]:
    """From what the offline run keeps to send: the table is JSON, and names its pictures by their digests."""
    module = import_module("wandb")

    run = module.init(project="slipway", mode="offline")
    TABLES["WandbCallback"](Callback(_wandb=module), "rollouts", ROWS, 3)
    run.finish()
    kept = {}
    for file in Path(os.environ["WANDB_DATA_DIR"]).rglob("staging/*"):
        kept[hashlib.sha256(file.read_bytes()).hexdigest()] = file
    tables = [json.loads(file.read_text()) for file in kept.values() if file.read_bytes().startswith(b"{")]
    (table,) = [each for each in tables if each["_type"] == "table" and isinstance(each["data"][0][-1], dict)]
    return [
        [picture(kept[each["sha256"]]) if isinstance(each, dict) else each for each in row] for row in table["data"]
    ]


def trackio() -> list[Any]:
    """From the local database, as its page reads it."""
    module = import_module("trackio")
    storage, places = import_module("trackio.sqlite_storage").SQLiteStorage, import_module("trackio.utils")

    module.init(project="slipway", name="tables", embed=False)
    TABLES["TrackioCallback"](Callback(_trackio=module), "rollouts", ROWS, 3)
    module.finish()
    (told,) = [each for each in storage.get_logs("slipway", "tables") if "rollouts" in each]
    assert told["train/global_step"] == 3
    return [
        [picture(places.MEDIA_DIR / each["file_path"]) if isinstance(each, dict) else each for each in row.values()]
        for row in told["rollouts"]["_value"]
    ]


def mlflow() -> list[Any]:
    """By its client, from a folder."""
    module = import_module("mlflow")

    with module.start_run() as run:
        TABLES["MLflowCallback"](Callback(_ml_flow=module), "rollouts", ROWS, 3)
    client = module.MlflowClient()
    place = Path(client.download_artifacts(run.info.run_id, "rollouts"))
    table = json.loads((place / "3.json").read_text())
    assert table["columns"] == list(ROWS[0])
    return [[*row[:-1], picture(place.parent / row[-1])] for row in table["data"]]


if __name__ == "__main__":
    print("READ " + json.dumps({"wandb": wandb, "trackio": trackio, "mlflow": mlflow}[sys.argv[1]]()))
