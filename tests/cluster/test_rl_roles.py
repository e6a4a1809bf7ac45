"""Reinforcement learning as one JobSet: a trainer of slipway-cpu and two desktops of linux-desktop, rollouts beside the
training. A desktop's program, the trainer's pod and a desktop's pod are killed; every rollout counts once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cluster.jobs.several import TIMING, Desk
from tests.integration.rl.conftest import start
from tests.support.cluster.cluster import Cluster
from tests.support.cpu_image import build
from tests.support.engine import Engine
from tests.support.rl_roles import SERVER, counted_once, job, processes

__all__ = ["start"]
pytestmark = [
    pytest.mark.cluster("jobset", "dns"),
    pytest.mark.ml,
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
]


def test_each_pod_is_replaced_in_mid_run_and_every_rollout_counts_once(
    desk: Desk, cluster: Cluster, engine: Engine, cpu_image: str, start: Path
) -> None:
    cluster.secret(desk.namespace, "desktop", {"token": "a-word-of-the-test"})
    bucket, _, how = desk.url.partition("?")
    model = f"{bucket}/given/model?{how}"
    for path in start.rglob("*"):
        if path.is_file():
            desk.store.put(f"given/model/{path.relative_to(start)}", path.read_bytes())
    here = job("0.0.0.0:$SLIPWAY_PORT_HTTP") | {"backend": "kubernetes", "inputs": {"model": {"url": model}}}
    here |= {"kubernetes": {"secrets": {"DESKTOP_TOKEN": "desktop/token"}}, "timing": TIMING}
    here |= {"resources": {"cpus": 0.2, "memory": "2Gi"}, "image": cluster.import_image(engine, cpu_image)}
    here["roles"]["desktop"] |= {
        "image": cluster.import_image(engine, build(engine, "linux-desktop")),
        "ports": {"http": 8000},
        "resources": {"cpus": 0.2, "memory": "1Gi"},
    }
    here["config"] |= {"model": "$SLIPWAY_INPUTS/model", "asynchronous": {"staleness": 2}}
    here["limits"]["grace"] = "5s"
    (run,) = desk.submit(here)

    def steps() -> int:
        return max(desk.checkpoints(run), default=0)

    desk.until("a first step", lambda: steps() >= 1 or None, run, 1200)
    os.kill(processes(SERVER, run)[0], signal.SIGKILL)
    desk.until("a second step", lambda: steps() >= 2 or None, run, 600)
    for role, rank in (("trainer", 0), ("desktop", 1)):
        pod = desk.until("the pod", lambda: desk.pod(run, role, rank), run)  # noqa: B023
        cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", desk.namespace, "--wait=false")
        before = steps()
        desk.until("another step", lambda: steps() > before or None, run, 600)  # noqa: B023
    result = desk.result(run, limit=900)
    assert result.outcome == "succeeded", result
    desk.launcher("gather", run, "--to", "got")
    counted_once(desk.path / "got")
