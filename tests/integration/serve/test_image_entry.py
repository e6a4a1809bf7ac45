"""The entrypoint of the image linux-desktop: a server of desktops, or the runtime of a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from eval.serve.__main__ import PROTOCOLS
from tests.support.documented import ROOT
from tests.support.serving import TOKEN
from tests.support.waiting import HANGS

IMAGE = ROOT / "images/linux-desktop"


def entry(*arguments: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": f"{IMAGE}{os.pathsep}{ROOT}", "SERVE_TOKEN": TOKEN}
    command = [sys.executable, "-m", "entry", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_protocol_starts_its_server(tmp_path: Path) -> None:
    given = ["--config", "examples/serve/login.yaml", "--out", str(tmp_path / "served")]
    with entry("openenv", *given, "--listen=127.0.0.1:0") as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip().removeprefix("listening on ")
        with urllib.request.urlopen(f"{address}/health") as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(HANGS) == 0


def test_what_is_not_given_is_the_images() -> None:
    told = "import entry, json; print(entry.PROTOCOLS, entry.served(['ors', '--out=/x']), entry.served(['run']))"
    done = subprocess.run([sys.executable, "-c", told], cwd=IMAGE, capture_output=True, text=True, check=True)
    defaults = ["--config", "/opt/slipway/serve/notes.yaml", "--listen", "0.0.0.0:8000"]
    assert done.stdout.strip() == f"{PROTOCOLS} {['ors', '--out=/x', *defaults]} None"
    copied = next(line for line in (IMAGE / "Dockerfile").read_text().splitlines() if "/opt/slipway/serve/" in line)
    assert "examples/serve/notes.yaml" in copied


def test_all_else_is_the_runtimes() -> None:
    with entry("--help") as runtime:
        told, _ = runtime.communicate()
    assert runtime.returncode == 0
    assert told.startswith("  openenv|mcp|ors")
    assert "The runtime of a Slipway job" in told
