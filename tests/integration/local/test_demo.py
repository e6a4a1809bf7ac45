"""The demo of the README, whole: the agent learns to log in. `.ci/run` runs it with fewer steps and tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.nightly
def test_the_demo_learns(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLIPWAY_", "XDG_"))}
    environment |= {"HOME": str(tmp_path), "SLIPWAY_STORE": f"file://{tmp_path}/store"}

    def launcher(*words: str) -> str:
        line = [sys.executable, "-m", "launcher.cli", *words]
        done = subprocess.run(
            line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, timeout=3600, check=True
        )
        return done.stdout

    try:
        launcher("submit", "examples/login", "--backend", "local", "--follow")
        rows = json.loads(launcher("results", "login-before", "login-after", "-o", "json"))["results"]
    finally:
        launcher("local", "stop", "--runs")
    rates = {row["agent"]: row["value"] for row in rows if row["metric"] == "success"}
    assert rates["untrained"] < 0.1
    assert rates["trained"] > 0.7
