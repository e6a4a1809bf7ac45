"""`local: {python: PATH}`: commands find another Python than the launcher's, and its packages name their runs."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.integration.local.machine import environ

pytestmark = pytest.mark.ci
LAUNCHER = Path(sys.executable).with_name("launcher")

JOB = """
name: asks
command: [python, -c, "import colour_of, sys; print('with', colour_of.NAME, sys.prefix)"]
"""
OURS = "name: ours\ncommand: [python, -m, training.sft, --config, x]\n"


class Project:
    """A folder whose slipway.yaml names a venv of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", symlinks=True, with_pip=False)
        (folder / "slipway.yaml").write_text("store: here\nlocal: {state: state, python: venv/bin/python}\n")
        (folder / "job.yaml").write_text(JOB)

    def install(self, version: str) -> None:
        (site,) = (self.folder / "venv" / "lib").glob("python*/site-packages")
        (site / "colour_of.py").write_text(f"NAME = 'version {version}'\n")
        for old in site.glob("colour_of-*.dist-info"):
            for file in old.iterdir():
                file.unlink()
            old.rmdir()
        info = site / f"colour_of-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: colour-of\nVersion: {version}\n")
        (info / "RECORD").write_text("colour_of.py,,\n")

    def launcher(self, *words: str) -> subprocess.CompletedProcess[str]:
        home = {f"XDG_{name}_HOME": str(self.folder / "home" / name) for name in ("CACHE", "STATE", "CONFIG")}
        return subprocess.run(
            [LAUNCHER, *words],
            cwd=self.folder,
            env=environ(**home),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def submit(self) -> str:
        done = self.launcher("submit", "job.yaml", "-o", "json")
        assert done.returncode == 0, done.stderr
        run = str(json.loads(done.stdout)[0]["run"])
        assert self.launcher("wait", run).returncode == 0, self.launcher("logs", run).stdout
        return run


def test_a_run_finds_that_python_and_is_named_for_its_packages(tmp_path: Path) -> None:
    project = Project(tmp_path)
    try:
        project.install("1.0")
        first = project.submit()
        assert f"with version 1.0 {tmp_path / 'venv'}" in project.launcher("logs", first).stdout
        assert project.submit() == first  # the same job with the same packages
        project.install("1.1")
        second = project.submit()
        assert second != first
        assert "with version 1.1" in project.launcher("logs", second).stdout
        (tmp_path / "ours.yaml").write_text(OURS)
        refused = project.launcher("submit", "ours.yaml")
        assert refused.returncode == 2
        lacks = (
            f"`training.sft` needs the Python packages training, PIL, torch, transformers, which {tmp_path}/venv/bin"
        )
        assert lacks in refused.stderr
        (tmp_path / "slipway.yaml").write_text("store: here\nlocal: {python: venv/bin/pyton}\n")
        refused = project.launcher("render", "job.yaml")
        assert refused.returncode == 2
        assert f"local.python: {tmp_path}/venv/bin/pyton: No such file or directory" in refused.stderr
    finally:
        (tmp_path / "slipway.yaml").write_text("store: here\nlocal: {state: state}\n")
        project.launcher("local", "stop")
