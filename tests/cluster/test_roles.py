"""An evaluation as one JobSet: desktops, a model server, and the agent that leads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from launcher.reasons import Reason
from tests.cluster.jobs.several import Desk, condition
from tests.support.cluster.cluster import Cluster
from tests.support.engine import Engine

pytestmark = [pytest.mark.cluster("jobset", "dns"), pytest.mark.nightly, pytest.mark.timeout(900)]
PROGRAMS = Path(__file__).with_name("jobs") / "evaluation"
DESKTOPS, TASKS = 3, 12


def evaluation(desk: Desk, image: str) -> dict[str, Any]:
    shutil.copytree(PROGRAMS, desk.path / "programs")
    job = desk.job("evaluation", "")
    del job["command"]
    roles = {
        "agent": {"leader": True, "needs": ["server", "desktop"], "command": ["python", "agent.py", TASKS]},
        "server": {
            "command": ["python", "model.py"],
            "ports": {"http": 8000},
            "ready": {"http": "/health"},
            "env": {"BOOT": "4"},
        },
        "desktop": {
            "replicas": DESKTOPS,
            "command": ["python", "desktop.py"],
            "ports": {"http": 0},
            "ready": {"http": "/health"},
            "env": {"BOOT": "2"},
        },
    }
    resources = {"cpus": 0.1, "memory": "512Mi"}
    return job | {"image": image, "code": "programs", "roles": roles, "resources": resources}


def test_an_evaluation_of_desktops_a_server_and_an_agent(
    desk: Desk, cluster: Cluster, engine: Engine, cpu_image: str
) -> None:
    (run,) = desk.submit(evaluation(desk, cluster.import_image(engine, cpu_image)))
    result = desk.result(run, limit=400)
    assert (result.outcome, result.attempt) == ("succeeded", 1), result
    # helpers stop after the agent is done: their logs are whole when they have left
    ended = desk.until("the set's end", lambda: condition(desk.set_of(run), "Completed"), run)
    assert ended is not None
    told = next(line for line in desk.log(run, 1, "agent-0").splitlines() if line.startswith("server "))
    _, server, _, *desktops = told.split()
    assert server == f"{run}-server-0-0.{run}:8000"
    hosts = [address.rpartition(":")[0] for address in desktops]
    assert hosts == [f"{run}-desktop-0-{rank}.{run}" for rank in range(DESKTOPS)]
    # every desktop had a share of the episodes, and together they had each once
    shares = [episodes(desk.log(run, 1, f"desktop-{rank}")) for rank in range(DESKTOPS)]
    assert all(shares)
    seeds = [seed for share in shares for seed in share]
    assert len(seeds) == len(set(seeds)) == TASKS
    desk.launcher("gather", run, "--to", "gathered")
    (summary,) = (desk.path / "gathered").rglob("summary.json")
    values = {row["metric"]: row["value"] for row in json.loads(summary.read_text()) if row["agent"] == "served"}
    assert (values["success"], values["parse_failures"]) == (1.0, 0.0), values
    # the helpers ended in peace: stopped because the agent was done, which is no failure
    assert desk.set_of(run)["status"].get("restarts", 0) == 0
    exits = desk.view(run).attempts[0].exits
    members = {"agent-0", "server-0", *(f"desktop-{rank}" for rank in range(DESKTOPS))}
    assert {member: found.reason for member, found in exits.items()} == dict.fromkeys(members, Reason.SUCCEEDED)
    assert {pod["status"]["phase"] for pod in desk.pods(run)} == {"Succeeded"}
    assert len(desk.pods(run)) == len(members)


def episodes(log: str) -> list[int]:
    return [int(line.split()[1]) for line in log.splitlines() if line.startswith("episode ")]


ANSWER = """
import http.server
if E["SLIPWAY_ATTEMPT"] == "1" and E["FAILS"] == "1": sys.exit("it does not start")
server = http.server.HTTPServer(("0.0.0.0", int(E["SLIPWAY_PORT_HTTP"])), http.server.BaseHTTPRequestHandler)
server.serve_forever()
"""
ASK = """
import socket
host, _, port = E["SLIPWAY_ENDPOINT_SERVER"].rpartition(":")
socket.create_connection((host, int(port)), 5).close()
print("reached", host, "in attempt", E["SLIPWAY_ATTEMPT"])
"""


def test_a_helper_that_fails_restarts_all_roles_and_its_failure_counts(desk: Desk) -> None:
    job = desk.job("helped", "", limits={"deadline": "10m", "grace": "5s", "retries": 1})
    head, ask = desk.job("x", ANSWER)["command"], desk.job("x", ASK)["command"]
    del job["command"]
    job["roles"] = {
        "agent": {"leader": True, "needs": ["server"], "command": ask},
        "server": {"command": head, "ports": {"http": 0}, "env": {"FAILS": "1"}},
    }
    (run,) = desk.submit(job)
    result = desk.result(run)
    assert (result.outcome, result.attempt) == ("succeeded", 2)
    assert f"reached {run}-server-0-0.{run} in attempt 2" in desk.log(run, 2, "agent-0")
    assert desk.exit(run, 1, "server-0").reason is Reason.USER_ERROR
    assert desk.set_of(run)["status"]["restarts"] == 1
