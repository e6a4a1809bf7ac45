"""docs/tutorials/monitor.md, typed as it stands."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

from tests.support.documented import BLOCK
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]


def test_the_tutorial(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / "monitor.md").read_text()
    (block,) = [found["body"] for found in BLOCK.finditer(page)]
    submit, monitor = block.strip().split("\n")
    (tmp_path / "slipway.yaml").write_text("store: .slipway/store\nlocal: {state: .slipway/local}\n")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    kept = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def argv(line: str) -> list[str]:
        assert line.startswith("launcher ")
        return [sys.executable, "-m", "launcher.cli", *shlex.split(line)[1:]]

    done = subprocess.run(
        argv(submit), cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    with out.open("wb") as written:
        # the port of the tutorial may be another monitor's on this machine
        process = subprocess.Popen([*argv(monitor), "--port", "0"], cwd=tmp_path, env=kept, stdout=written)
    try:
        until(lambda: out.read_text().endswith("\n"))
        browser = build_opener(HTTPCookieProcessor())
        first = browser.open(out.read_text().strip(), timeout=60)
        assert "code" not in first.url
        until(lambda: b"succeeded" in browser.open(first.url, timeout=60).read())
        assert b"hello-" in browser.open(first.url, timeout=60).read()
        assert (tmp_path / ".local/state/slipway/monitor/monitor.sqlite").exists()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        subprocess.run(
            argv("launcher local stop --runs"), cwd=tmp_path, env=kept, capture_output=True, timeout=100, check=False
        )
    assert process.returncode in (0, 130, -2)


def test_the_views_have_the_columns_that_are_told(tmp_path: Path) -> None:
    from sqlalchemy import inspect

    from launcher.monitor.database import open_database

    engine = open_database(f"sqlite:///{tmp_path / 'm.sqlite'}")
    columns = {column["name"] for column in inspect(engine).get_columns("v_rollouts")}
    engine.dispose()
    assert {"run", "agent", "benchmark", "task", "seed", "outcome", "score", "turns", "seconds", "cost"} <= columns
