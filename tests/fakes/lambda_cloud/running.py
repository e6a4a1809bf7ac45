"""Starts the stand-in from a test, and asks its /admin."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
KEY = "secret_slipway-test_0123456789abcdef"


class FakeLambda:
    """The server as a process; it ends with this one, whose pipe it reads."""

    def __init__(self, folder: Path, *, speed: float = 1.0, program: Path | None = None, key: str = KEY) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.fakes.lambda_cloud", str(folder), key, str(speed)]
        self.process = subprocess.Popen(
            [*command, *([str(program)] if program else [])],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = f"http://127.0.0.1:{int(self.process.stdout.readline())}"
        self.url = f"{self.address}/api/v1"

    def admin(self, what: str, **given: Any) -> Any:
        request = urllib.request.Request(f"{self.address}/admin/{what}", json.dumps(given).encode(), method="POST")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())

    def bodies(self) -> list[dict[str, Any]]:
        """Every instance that was ever launched: {id, status, body of the launch, when it was first healthy or 0}."""
        return list(self.admin("bodies"))

    def ledger(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.admin("ledger") if entry["event"] == event]

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
