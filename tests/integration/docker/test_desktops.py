"""Desktops, a model server and the agent as roles of one run in containers, each of the image linux-desktop."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from launcher.backends.docker.container import NETWORK
from tests.support.cpu_image import build
from tests.support.desktop_roles import DESKTOPS, TASKS, example
from tests.support.engine import Engine
from tests.support.forwarding import fetch, forwarding
from tests.support.waiting import until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
LAUNCHER = str(Path(sys.executable).with_name("launcher"))
VIEW = "/tmp/desktop-view-6080.json"
HELD = """
import os, runpy, sys, time
while not os.path.exists("/tmp/go"): time.sleep(0.2)
runpy.run_module("eval.run", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def place(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose runs are containers."""
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slipway.yaml").write_text(f"store: {tmp_path}/store\nlocal: {{state: {tmp_path}/local, cpus: 64}}\n")
    try:
        yield tmp_path
    finally:
        subprocess.run([LAUNCHER, "local", "stop", "--runs"], capture_output=True, check=False)
        engine.docker("network", "rm", NETWORK, check=False)


def launcher(*words: str, text: str = "") -> str:
    done = subprocess.run([LAUNCHER, *words], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_example_runs_in_containers_and_is_looked_on(place: Path, engine: Engine) -> None:
    job = example(build(engine, "linux-desktop"))
    job["roles"]["agent"]["command"] = ["python", "-c", HELD, "--config", "$SLIPWAY_CONFIG"]
    (place / "job.yaml").write_text(yaml.safe_dump(job))
    launcher("secrets", "set", "DESKTOP_TOKEN", text="a-word-of-the-test\n")
    (run,) = [row["run"] for row in json.loads(launcher("submit", "job.yaml", "--backend", "docker", "-o", "json"))]
    try:
        looked_on(run)
    finally:
        subprocess.run([LAUNCHER, "exec", run, "--", "touch", "/tmp/go"], check=False)
    launcher("wait", run)
    launcher("gather", run, "--to", "gathered")
    (summary,) = place.glob("gathered/**/summary.json")
    values = {row["metric"]: row["value"] for row in json.loads(summary.read_text()) if row["agent"] == "model"}
    assert (values["success"], values["parse_failures"]) == (1.0, 0.0), values
    (tasks,) = place.glob("gathered/**/tasks.jsonl")
    assert len(tasks.read_text().splitlines()) == TASKS
    everything = b"".join(path.read_bytes() for path in (place / "store").rglob("*") if path.is_file())
    assert b"a-word-of-the-test" not in everything


def shown(member: list[str]) -> bool:
    """Whether the desktop is up: the container is there before its command runs."""
    return not subprocess.run([LAUNCHER, "exec", *member, "--", "cat", VIEW], capture_output=True).returncode


def looked_on(run: str) -> None:
    """Each desktop has a view with a password of its own, which no log tells."""
    views = []
    for rank in range(DESKTOPS):
        member = [run, "--role", "desktop", "--rank", str(rank)]
        until(lambda: shown(member), lambda: launcher("logs", *member))  # noqa: B023
        view = json.loads(launcher("exec", *member, "--", "cat", VIEW))
        assert launcher("exec", *member, "--", "stat", "-c", "%a", VIEW) == "600\n"
        assert view["control"] is False
        with forwarding([LAUNCHER, "forward", run, "vnc:0", *member[1:]]) as port:
            assert b"noVNC" in fetch(f"http://127.0.0.1:{port}/vnc.html")
        assert view["password"] not in launcher("logs", *member)
        views.append(view)
    assert len({view["password"] for view in views}) == DESKTOPS
