"""Every command of docs/howto/containers.md runs, and its Dockerfile makes an image that jobs run in.

Marks are those of the README's test: `<!-- needs: ... -->` above a block leaves it out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.docker.conftest import Containers
from tests.support.documented import BLOCK, commands
from tests.support.engine import ROOT, Engine
from tools import wheel

TEXT = (ROOT / "docs" / "howto" / "containers.md").read_text(encoding="utf-8")
DOCKERFILE = re.search(r"```dockerfile\n(.*?)```", TEXT, re.DOTALL)


def blocks() -> list[str]:
    return [match["body"] for match in BLOCK.finditer(TEXT) if match["mark"] is None]


def on_this_engine(command: str, engine: Engine) -> str:
    """The tests' engine reaches no registry: images are built on the tests' own base there."""
    if engine.base and command.startswith("launcher images build"):
        return f"{command} --base {engine.base} --network host"
    return command


def run(command: str, folder: Path, engine: Engine) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = {name: str(folder / "home") for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
    environ = {**engine.environment, **home, "PATH": path, "NO_COLOR": "1"}
    line = ["bash", "-c", on_this_engine(command, engine)]
    given = {"cwd": folder, "env": environ, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    while True:
        done: subprocess.CompletedProcess[str] = subprocess.run(line, timeout=1500, check=False, **given)  # type: ignore[call-overload]
        if "has no container that runs" not in done.stderr:
            return done
        time.sleep(0.2)  # a reader is not so quick


@pytest.mark.nightly  # it builds slipway-cpu
def test_every_command_runs(tmp_path: Path, engine: Engine, cpu_image: str) -> None:
    """In order and in one place, as a reader would, in a folder with what the clone has."""
    for name in ("examples", "images", "launcher", "training", "eval", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    bridge = "" if engine.base is None else "docker: {network: host}\n"  # the tests' engine has none
    (tmp_path / "slipway.yaml").write_text(f"store: store\nlocal: {{state: {tmp_path / 'state'}}}\n{bridge}")
    try:
        assert sum(len(commands(body)) for body in blocks()) >= 9
        for body in blocks():
            for command in commands(body):
                done = run(command, tmp_path, engine)
                assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    finally:
        run("launcher local stop --runs", tmp_path, engine)


@pytest.mark.nightly  # packages come from Debian's mirror and from PyPI
@pytest.mark.alone
@pytest.mark.timeout(1200)
def test_the_dockerfile_makes_an_image_that_jobs_run_in(tmp_path: Path, here: Containers) -> None:
    assert DOCKERFILE is not None
    first, *lines = DOCKERFILE[1].splitlines()
    assert first == "FROM python:3.11-slim"
    head = [first]
    if here.engine.base:  # no registry: a Python 3.11 as in that image, on the tests' base
        python = (
            "apt-get update -q && apt-get install -qy --no-install-recommends python3-venv && python3 -m venv /venv"
        )
        head = [f"FROM {here.engine.base}", f"RUN {python}", "ENV PATH=/venv/bin:/usr/bin:/bin"]
    (folder := tmp_path / "own").mkdir()
    (folder / "Dockerfile").write_text("\n".join([*head, *lines]) + "\n")
    for file in wheel.make(tmp_path / "dist"):
        if file.suffix == ".whl":
            shutil.copy(file, folder)
    tag = "slipway-test-own:1"
    here.engine.docker("build", *here.engine.network, "-t", tag, str(folder), timeout=900)
    try:
        one = here.job("own", "say('ran', sys.version_info[0])", image=tag)
        here.backend.check([one])
        here.submit(one)
        assert here.wait(one)[0].outcome == "succeeded", here.explain()
        assert here.lines("ran") == ["3"]
    finally:
        here.engine.docker("rmi", "-f", tag, check=False)
