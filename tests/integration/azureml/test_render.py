"""What is rendered for Azure ML, compared with the SDK's own objects, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.azureml import render
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob
from tests.unit.azureml.jobs import JOBS, PLACE

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow


def run_command(one: ResolvedJob, folder: Path, runtime: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command of a job as a node does, with a shell script in place of python."""
    (folder / "bin").mkdir()
    (folder / "bin" / "python").write_text(f"#!/bin/sh\n{runtime}\n")
    (folder / "bin" / "python").chmod(0o755)
    document = render.documents(one)[-1]
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **document["environment_variables"], **variables}
    return subprocess.run(
        ["bash", "-c", document["command"]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_node_tells_its_rank_and_its_place_to_the_runtime(tmp_path: Path) -> None:
    one = JOBS["two-nodes-spot"]
    says = (
        'echo "$SLIPWAY_RANK"; echo "$SLIPWAY_PLACEMENT"; env | grep -c "^RANK=\\|^MASTER_ADDR=\\|^NODE_RANK="; exit 0'
    )
    done = run_command(one, tmp_path, says, NODE_RANK="1", RANK="1", MASTER_ADDR="10.0.0.4", WORLD_SIZE="2")
    assert done.returncode == 0, done.stderr
    rank, placement, leaked = done.stdout.splitlines()
    assert rank == "1"
    assert leaked == "0"
    place = json.loads(placement)
    assert place["kind"] == "machine"
    assert place["where"] == f"{PLACE['subscription']}/ml/lab/{run_id(one)}"
    assert len(place["container"]) == 36


@pytest.mark.parametrize("code", [0, 78, 126, 127])
def test_a_code_that_is_final_ends_the_node(tmp_path: Path, code: int) -> None:
    assert run_command(JOBS["one-gpu"], tmp_path, f"exit {code}").returncode == code


def without_pauses(folder: Path) -> str:
    """A PATH whose `sleep` notes for how long, and returns."""
    (folder / "quick").mkdir()
    (folder / "quick" / "sleep").write_text("#!/bin/sh\necho $1 >> pauses\n")
    (folder / "quick" / "sleep").chmod(0o755)
    return f"{folder / 'bin'}:{folder / 'quick'}:{os.environ['PATH']}"


def test_an_image_without_the_runtime_is_not_billed_until_the_limit(tmp_path: Path) -> None:
    missing = "echo start >> starts; echo No module named launcher; exit 1"
    assert run_command(JOBS["one-gpu"], tmp_path, missing, PATH=without_pauses(tmp_path)).returncode == 1
    assert (tmp_path / "starts").read_text().count("start") == 20


def test_any_other_code_starts_the_runtime_again(tmp_path: Path) -> None:
    runtime = "echo start >> starts; [ $(wc -l < starts) -lt 3 ] && exit 75; exit 0"
    assert run_command(JOBS["one-gpu"], tmp_path, runtime, PATH=without_pauses(tmp_path)).returncode == 0
    assert (tmp_path / "starts").read_text().count("start") == 3
    assert (tmp_path / "pauses").read_text().split() == ["5", "10"]


def test_sigterm_reaches_the_runtime_which_ends_by_itself(tmp_path: Path) -> None:
    runtime = "trap 'echo asked > asked; exit 143' TERM; kill -TERM $PPID; while :; do sleep 0.05; done"
    assert run_command(JOBS["one-gpu"], tmp_path, runtime).returncode == 143
    assert (tmp_path / "asked").exists()


def test_sigterm_while_the_runtime_starts_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the start and the line that keeps its process id: the runtime would work on until it is killed."""
    real = render.documents

    def interrupted(one: ResolvedJob) -> list[dict[str, Any]]:
        (document,) = real(one)
        before, started, after = document["command"].partition("  child=$!\n")
        assert started
        return [{**document, "command": f"{before}  kill -TERM $$\n{started}{after}"}]

    monkeypatch.setattr(render, "documents", interrupted)
    runtime = "trap 'exit 143' TERM; for i in $(seq 100); do sleep 0.05; done; exit 9"
    assert run_command(JOBS["one-gpu"], tmp_path, runtime).returncode == 143
