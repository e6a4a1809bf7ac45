"""The commands of docs/howto/android.md, as they stand there, on a phone of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.support.android.adbd import Adbd
from tests.support.documented import blocks

ROOT = Path(__file__).parents[3]


def test_the_commands_of_the_guide_evaluate_on_a_phone(adbd: Adbd, tmp_path: Path) -> None:
    shown = blocks(ROOT / "docs/howto/android.md")
    (commands,) = (block for block in shown if any("eval.run" in each.line for each in block))
    lines = [each.words for each in commands]
    assert lines[0] == ["make", "dev", "phone-tools"]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for words in lines[1:]:
        words = [sys.executable if each == ".venv/bin/python" else each for each in words]
        environment = {**os.environ, "PYTHONPATH": os.fspath(ROOT)}
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        if words[0] == "adb":
            assert f"{adbd.serial}\tdevice" in done.stdout
    records = [msgspec.json.decode(line) for line in (tmp_path / "results/tasks.jsonl").read_text().splitlines()]
    assert [each["success"] for each in records] == [True] * 4
    assert "<html" in (tmp_path / "replay.html").read_text()
    assert len(adbd.device.screen.contacts) == 4
