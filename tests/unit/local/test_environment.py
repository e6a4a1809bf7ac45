"""What a runtime gets to see, and what the queue may keep of a submitter's environment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.backends.local import daemon
from launcher.backends.local.environment import private_variables, runtime_environment, site_variables
from launcher.backends.local.state import StateDir
from launcher.files import create
from tests.support.jobs import job

SHELL = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LC_ALL": "C",
    "HF_HOME": "/cache",
    "HF_TOKEN": "hush",
    "AWS_PROFILE": "work",
    "AWS_SECRET_ACCESS_KEY": "hush",
    "https_proxy": "http://me:hush@proxy",
    "SLIPWAY_MARK": "outer",
    "SLIPWAY_RUN": "outer",
    "CUDA_VISIBLE_DEVICES": "7",
    "GITHUB_TOKEN": "hush",
    "EDITOR": "vi",
}


def test_in_the_clear_are_only_harmless_variables() -> None:
    assert set(site_variables(SHELL)) == {"PATH", "HOME", "LC_ALL", "HF_HOME"}
    assert set(private_variables(SHELL)) == {"AWS_PROFILE", "AWS_SECRET_ACCESS_KEY", "https_proxy"}


def test_a_runtime_inherits_nothing_else(tmp_path: Path) -> None:
    one = job("one", role={"resources": {"cpus": 3.0}})
    made = runtime_environment(
        one,
        "one-0123456789ab",
        "main-0",
        state_id="id",
        site=site_variables(SHELL),
        private=private_variables(SHELL),
        secrets={"TOKEN": "x"},
        gpus=("2", "5"),
        work=tmp_path,
        python="/venv/bin/python",
    )
    assert made["PATH"] == "/venv/bin:/bin"
    assert made["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert made["OMP_NUM_THREADS"] == "3"
    assert made["SLIPWAY_MARK"] == "id:one-0123456789ab:main-0"
    assert made["SLIPWAY_RUN"] == "one-0123456789ab"
    assert json.loads(made["SLIPWAY_PLACEMENT"])["where"].endswith("/id/one-0123456789ab")
    assert json.loads(made["SLIPWAY_JOB"])["name"] == "one"
    assert not {"EDITOR", "GITHUB_TOKEN", "HF_TOKEN"} & set(made)
    big = job("big", config={"x": "y" * 100_000})
    assert "SLIPWAY_JOB" not in runtime_environment(
        big, "r", "main-0", state_id="", site={}, private={}, secrets={}, gpus=(), work=tmp_path, python=sys.executable
    )


def test_a_supervisor_that_a_run_starts_is_not_part_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`launcher submit` inside a job: the supervisor must survive the job's end."""
    seen: dict[str, str] = {}

    def started(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        seen.update(options["env"])  # type: ignore[call-overload]
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", started)
    monkeypatch.setenv("SLIPWAY_MARK", "outer")
    daemon.ensure(StateDir(tmp_path).make(), {})
    assert seen
    assert not [name for name in seen if name.startswith("SLIPWAY_")]


def test_create_is_create_only_and_whole(tmp_path: Path) -> None:
    assert create(tmp_path / "a", b"1")
    assert not create(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"1"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
