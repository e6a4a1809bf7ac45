"""Starts the stand-in from a test, and asks its /admin."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


class FakeAzure:
    """The server as a process; it ends with this one, whose pipe it reads."""

    def __init__(self, folder: Path, *, speed: float = 1.0, program: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        command = [sys.executable, "-m", "tests.fakes.azureml", str(folder), str(speed)]
        self.process = subprocess.Popen(
            [*command, *([str(program)] if program else [])],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    @property
    def environ(self) -> dict[str, str]:
        """What sends the SDK here and nowhere else, with a login."""
        return {
            "HTTPS_PROXY": self.address,
            "NO_PROXY": "",
            "REQUESTS_CA_BUNDLE": str(self.folder / "authority.pem"),
            "AZURE_TENANT_ID": "33333333-3333-3333-3333-333333333333",
            "AZURE_CLIENT_ID": "44444444-4444-4444-4444-444444444444",
            "AZURE_CLIENT_SECRET": "not-a-secret",
        }

    def admin(self, what: str, **given: Any) -> Any:
        request = urllib.request.Request(f"{self.address}/admin/{what}", json.dumps(given).encode(), method="POST")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())

    def bodies(self) -> dict[str, dict[str, Any]]:
        """Every job that was ever created: name -> the body of its first PUT."""
        return dict(self.admin("bodies"))

    def ledger(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.admin("ledger") if entry["event"] == event]

    def calls(self) -> list[str]:
        return [entry["call"] or f"{entry['method']} {entry['path']}" for entry in self.ledger("request")]

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
