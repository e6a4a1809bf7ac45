"""Real desktops, a model server and the agent as one JobSet, each pod of the image linux-desktop and without rights."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.jobs.several import TIMING, Desk
from tests.support.cluster.cluster import Cluster
from tests.support.cpu_image import build
from tests.support.desktop_roles import DESKTOPS, TASKS, example
from tests.support.engine import Engine
from tests.support.forwarding import fetch, forwarding

pytestmark = [pytest.mark.cluster("jobset", "dns"), pytest.mark.nightly, pytest.mark.timeout(1800)]
LAUNCHER = str(Path(sys.executable).with_name("launcher"))
HELD = "until [ -e /tmp/go ]; do sleep .2; done; exec python -m eval.run --config $0"
VIEW = "/tmp/desktop-view-6080.json"


def view_of(desk: Desk, member: list[str]) -> dict[str, Any] | None:
    """None before the desktop is up."""
    try:
        said: dict[str, Any] = json.loads(desk.launcher("exec", *member, "--", "cat", VIEW, code=None))
    except ValueError:
        return None
    return said


def test_the_example_runs_on_kubernetes_and_is_looked_on(desk: Desk, cluster: Cluster, engine: Engine) -> None:
    cluster.secret(desk.namespace, "desktop", {"token": "a-word-of-the-test"})
    block = {"secrets": {"DESKTOP_TOKEN": "desktop/token"}}
    job = example(cluster.import_image(engine, build(engine, "linux-desktop")), backend="kubernetes", kubernetes=block)
    job |= {"timing": TIMING, "limits": {"deadline": "20m", "grace": "5s"}}
    job["roles"]["agent"]["command"] = ["sh", "-c", HELD, "$SLIPWAY_CONFIG"]
    (run,) = desk.submit(job)
    desk.until("the agent's start", lambda: desk.pod(run, "agent"), run, 600)
    views = []
    for rank in range(DESKTOPS):
        member = [run, "--role", "desktop", "--rank", str(rank)]
        look = partial(view_of, desk, member)
        said = desk.until(
            "the view",
            look,
            run,
            600,
        )
        with forwarding([LAUNCHER, "forward", run, "vnc:0", *member[1:]], desk.environment, desk.path) as port:
            assert b"noVNC" in fetch(f"http://127.0.0.1:{port}/vnc.html")
        assert said["password"] not in desk.launcher("logs", *member)
        views.append(said["password"])
    assert len(set(views)) == DESKTOPS
    desk.launcher("exec", run, "--", "touch", "/tmp/go")
    result = desk.result(run, limit=900)
    assert (result.outcome, result.attempt) == ("succeeded", 1), result
    desk.launcher("gather", run, "--to", "gathered")
    (summary,) = (desk.path / "gathered").rglob("summary.json")
    values = {row["metric"]: row["value"] for row in json.loads(summary.read_text()) if row["agent"] == "model"}
    assert (values["success"], values["parse_failures"]) == (1.0, 0.0), values
    (tasks,) = (desk.path / "gathered").rglob("tasks.jsonl")
    assert len(tasks.read_text().splitlines()) == TASKS
