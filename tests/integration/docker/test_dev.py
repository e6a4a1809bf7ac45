"""`launcher dev` in a container: the job's image, code, inputs and environment, and no container left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.docker.conftest import Containers
from tests.integration.local.machine import environ, wait_for

LAUNCHER = Path(sys.executable).with_name("launcher")
JOB = """\
name: train
image: {image}
command: [sh, -c, "echo done > $SLIPWAY_OUTPUTS/results/note"]
outputs: [results]
config: {{lr: 0.5}}
code: code
inputs: {{data: data}}
env: {{GREETING: hello}}
backend: docker
docker: {{volumes: ["{path}:{path}"]}}
"""
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def call(here: Containers, tmp_path: Path) -> Call:
    """The command line in a project with a job in a container."""
    project = tmp_path / "project"
    for folder, name, text in (("code", "main.py", "print('mine')\n"), ("data", "rows", "1 2 3\n")):
        (project / folder).mkdir(parents=True)
        (project / folder / name).write_text(text)
    (project / "job.yaml").write_text(JOB.format(image=here.image, path=here.path))
    (project / "slipway.yaml").write_text(f"store: {here.store.url}\nlocal: {{state: {here.state.path}}}\n")
    own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [LAUNCHER, *words],
            cwd=project,
            env={**environ(**own), **here.engine.environment, **own},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    return run


def runs(call: Call) -> dict[str, dict[str, Any]]:
    return {each["run"]: each for each in json.loads(call("status", "-o", "json").stdout)}


def test_a_session_in_a_container_has_what_the_job_has_and_leaves_no_container(call: Call, here: Containers) -> None:
    text = "python main.py; cat $SLIPWAY_INPUTS/data/rows; cat $SLIPWAY_CONFIG; echo $GREETING $(id -u)"
    shown = call("dev", "job.yaml", "--command", text).stdout
    for part in ("mine\n", "1 2 3\n", "0.5", f"hello {os.getuid()}\n"):
        assert part in shown
    assert call("dev", "job.yaml", "--command", "exit 7", code=7)
    ((run, line),) = runs(call).items()
    assert (line["state"], line["name"]) == ("running", "dev-train")
    # entered twice, and it is the container of the image that the job names
    (container,) = here.containers()
    assert container["Config"]["Image"].startswith(here.image.partition("@")[0])
    call("dev", "job.yaml", "--stop")
    wait_for(lambda: runs(call)[run]["state"] == "cancelled", explain=lambda: str(runs(call)))
    wait_for(lambda: not here.containers("-a"))


def test_a_container_that_nobody_is_in_ends_by_itself(call: Call, here: Containers) -> None:
    shown = call("dev", "job.yaml", "--idle", "2s", "--command", "sleep 4; echo $SLIPWAY_RUN").stdout
    run = shown.split()[-1]
    wait_for(lambda: runs(call)[run]["state"] == "succeeded", explain=lambda: str(runs(call)))
    assert "nobody was in it" in call("logs", run).stdout
    wait_for(lambda: not here.containers("-a"))


def test_a_container_that_is_removed_is_made_again_and_the_session_goes_on(call: Call, here: Containers) -> None:
    run = call("dev", "job.yaml", "--command", "echo $SLIPWAY_RUN").stdout.strip()
    (first,) = here.containers()
    here.engine.docker("rm", "-f", first["Id"])
    wait_for(lambda: [one for one in here.containers() if one["Id"] != first["Id"]], explain=lambda: str(runs(call)))
    assert call("dev", "job.yaml", "--command", "echo $SLIPWAY_RUN").stdout.strip() == run
    assert runs(call)[run]["attempts"] == 2
    call("dev", "job.yaml", "--stop")
    wait_for(lambda: not here.containers("-a"))
