"""Metrics, progress and use of the machine; the kernel's count of kills."""

from __future__ import annotations

import subprocess
import sys

from launcher.runtime.uploads.telemetry import Usage


def test_usage_counts_children() -> None:
    usage = Usage(gpus=0)
    with subprocess.Popen(
        [sys.executable, "-c", "x = bytearray(50_000_000); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert usage.sample()["memory"] > 50_000_000
        child.kill()
