"""A submit that was cut off between job.json and the queue: status says what repairs it, and wait ends."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.backends.local import daemon
from launcher.backends.local.state import StateDir
from tests.integration.local.machine import environ

LAUNCHER = Path(sys.executable).with_name("launcher")
JOB = """
name: {name}
command: [sh, -c, "mkdir -p $SLIPWAY_OUTPUTS/out; date > $SLIPWAY_OUTPUTS/out/a; echo {name} >> {root}/ran"]
resources: {{cpus: 0.1, memory: 64Mi}}
outputs: [out]
"""
# Ctrl-C at the moment when every job.json is in the store and nothing yet in the queue
INTERRUPT = """
import os, signal, sys
from launcher.backends.local import backend
real = backend.LocalBackend.submit
def submit(self, *rest):
    if "HOW" in os.environ:
        os.kill(os.getpid(), getattr(signal, os.environ["HOW"]))
    return real(self, *rest)
backend.LocalBackend.submit = submit
"""


class Home:
    """A user's project, and verbs typed in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = (root / "store").as_uri()
        self.environ = environ(
            XDG_STATE_HOME=str(root / "state"),
            XDG_CACHE_HOME=str(root / "cache"),
            XDG_CONFIG_HOME=str(root / "config"),
            SLIPWAY_STORE=self.store,
            PATH=f"{LAUNCHER.parent}:{os.environ['PATH']}",
            PYTHONPATH=str(root / "sitecustomize"),  # always: it is a part of what a local run is
        )

    def __call__(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [LAUNCHER, *words],
            cwd=self.root,
            env={**self.environ, **more},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """A line as it was printed, typed into a shell."""
        return subprocess.run(
            ["sh", "-c", line],
            cwd=self.root,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def ran(self) -> list[str]:
        path = self.root / "ran"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    (tmp_path / "sitecustomize").mkdir()
    (tmp_path / "sitecustomize" / "sitecustomize.py").write_text(INTERRUPT)
    yield made
    state = StateDir(tmp_path / "state" / "slipway" / "local")
    if state.path.exists():
        daemon.stop(state)


def cut_off(home: Home, text: str, how: str) -> list[str]:
    """Submits, and is cut off; the runs."""
    (home.root / "job.yaml").write_text(text)
    done = home("submit", "job.yaml", HOW=how)
    assert done.returncode == (130 if how == "SIGINT" else -signal.SIGKILL), done.stderr
    return sorted(path.name for path in (home.root / "store" / "runs").iterdir())


@pytest.mark.parametrize("how", ["SIGINT", "SIGKILL"])
def test_a_run_whose_submit_was_cut_off_is_repaired_by_the_command_that_status_says(home: Home, how: str) -> None:
    stages = [JOB.format(name=name, root=home.root) for name in ("first", "second")]
    runs = cut_off(home, "---".join(stages) + "inputs: {x: {job: first, output: out}}\n", how)
    assert [run.rpartition("-")[0] for run in runs] == ["first", "second"]
    for run in runs:
        said = home("status", run).stdout
        assert "queued" in said
        assert f"launcher submit --run {run}" in said
        waited = home("wait", run)
        assert waited.returncode == 1
        assert "its submit was interrupted, and no backend has the run" in waited.stderr
    (line,) = waited.stderr.strip().splitlines()
    command = line[line.index("launcher submit --run") :]
    assert shlex.split(command)[:3] == ["launcher", "submit", "--run"]
    repaired = home.shell(command)  # that of the second stage gives the first to the queue as well
    assert repaired.returncode == 0, repaired.stderr
    waited = home("wait", *runs, "--timeout", "100s")
    assert waited.returncode == 0, waited.stdout + waited.stderr
    assert home.ran()[0] == "first"
    assert len(home.ran()) == 2
    assert "interrupted" not in home("status", *runs).stdout


def test_a_submit_that_goes_on_and_one_of_another_place_are_not_cut_off(home: Home) -> None:
    """Another folder's queue may have the run: whoever looks from there says nothing of a repair, and waits."""
    (run,) = cut_off(home, JOB.format(name="first", root=home.root), "SIGKILL")
    other = home("status", run, XDG_STATE_HOME=str(home.root / "other"))
    assert "queued" in other.stdout
    assert "interrupted" not in other.stdout
    again = home("submit", "job.yaml")  # the same file once more does it as well
    assert again.returncode == 0, again.stderr
    assert home("wait", run, "--timeout", "100s").returncode == 0
    assert not list((home.root / "state" / "slipway" / "submits").iterdir())


def test_what_submit_is_to_do_is_named_in_one_way(home: Home) -> None:
    for words in (["submit"], ["submit", "--run", "first-0123456789ab", "job.yaml"]):
        done = home(*words)
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
    assert home("submit", "--run", "first-0123456789ab").returncode != 0
