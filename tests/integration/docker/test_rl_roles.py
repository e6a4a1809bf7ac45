"""Reinforcement learning in containers: a trainer of slipway-cpu and two desktops of linux-desktop, with rollouts in
turns and beside the training. Each container is killed in mid-run and replaced, and every rollout counts once."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.docker.container import MEMBER, RUN
from tests.integration.docker.test_desktops import launcher, place
from tests.integration.rl.conftest import start
from tests.support.cpu_image import build
from tests.support.engine import Engine
from tests.support.rl_roles import SERVER, TRAINER, counted_once, job, processes, until

__all__ = ["place", "start"]
pytestmark = [pytest.mark.ml, pytest.mark.nightly, pytest.mark.timeout(3600)]


def told() -> dict[str, Any]:
    (run,) = json.loads(launcher("status", "-o", "json"))
    assert run["state"] not in ("failed", "cancelled"), launcher("logs", run["run"])
    return dict(run)


def step() -> int:
    return int(str(told()["step"] or 0).partition(".")[0])


def container(engine: Engine, run: str, member: str) -> str:
    """The id of the one that a member has; "" while it has none."""
    labels = [f"--filter=label={key}={value}" for key, value in ((RUN, run), (MEMBER, member))]
    return engine.docker("ps", "-q", "--no-trunc", *labels).stdout.strip()


@pytest.mark.parametrize("beside", [False, True], ids=["in turns", "beside"])
def test_each_container_is_replaced_in_mid_run_and_every_rollout_counts_once(
    place: Path, engine: Engine, start: Path, beside: bool
) -> None:
    shutil.copytree(start, place / "model")
    here = job("0.0.0.0:$SLIPWAY_PORT_HTTP") | {"backend": "docker", "inputs": {"model": "model"}}
    here["image"] = build(engine)
    here["roles"]["desktop"]["image"] = build(engine, "linux-desktop")
    here["roles"]["desktop"]["ports"] = {"http": 8000}
    here["config"]["model"] = "$SLIPWAY_INPUTS/model"
    if beside:
        here["config"]["asynchronous"] = {"staleness": 2}
    (place / "job.yaml").write_text(yaml.safe_dump(here))
    launcher("secrets", "set", "DESKTOP_TOKEN", text="a-word-of-the-test\n")
    (run,) = [row["run"] for row in json.loads(launcher("submit", "job.yaml", "-o", "json"))]
    until(lambda: step() >= 1, 1200)
    os.kill(processes(SERVER, run)[0], signal.SIGKILL)  # its container starts another
    until(lambda: step() >= 2)
    trainer = container(engine, run, "trainer-0")
    engine.docker("kill", trainer)
    until(lambda: container(engine, run, "trainer-0") not in ("", trainer) and bool(processes(TRAINER, run)))
    engine.docker("kill", container(engine, run, "desktop-1"))
    launcher("wait", run)
    assert told()["state"] == "succeeded"
    launcher("gather", run, "--to", "got")
    counted_once(place / "got")
    until(lambda: not processes(SERVER, run) + processes(TRAINER, run), 60)
