"""Several stages and several ranks on a real JobSet controller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.reasons import Reason
from tests.cluster.jobs.several import Desk, condition
from tests.support.cluster.cluster import Cluster

pytestmark = [pytest.mark.cluster("jobset", "dns"), pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture
def desk(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    cluster.jobset()
    cluster.dns()
    for name, value in {**cluster.s3.environment, "KUBECONFIG": str(cluster.kubeconfig)}.items():
        monkeypatch.setenv(name, value)
    return Desk(cluster, tmp_path / "desk")


# stages

FIRST = """
print("first began", time.time(), flush=True)
(out / "text").write_text("made by the first")
time.sleep(2)
print("first ended", time.time(), flush=True)
"""
SECOND = """
print("second began", time.time(), flush=True)
text = pathlib.Path(E["SLIPWAY_INPUTS"], "text", "text").read_text()
(out / "text").write_text(text + " and read by the second")
print(text, flush=True)
"""


def time_of(log: str, what: str) -> float:
    (line,) = [line for line in log.splitlines() if line.startswith(what)]
    return float(line.split()[-1])


def test_a_stage_starts_after_the_one_it_reads_from_and_both_succeed(desk: Desk) -> None:
    inputs = {"text": {"job": "first", "output": "results"}}
    first, second = desk.submit(desk.job("first", FIRST), desk.job("second", SECOND, inputs=inputs))
    assert [desk.result(run).outcome for run in (first, second)] == ["succeeded"] * 2
    before, after = desk.log(first), desk.log(second)
    assert "made by the first" in after
    # by one clock: the nodes share a machine
    assert time_of(before, "first ended") < time_of(after, "second began")
    assert [len(desk.view(run).attempts) for run in (first, second)] == [1, 1]
    made = desk.until(
        "the set's end", lambda: condition(desk.set_of(first), "Completed") and desk.set_of(first), second
    )
    assert made["metadata"]["name"] == desk.set_of(second)["metadata"]["name"]
    assert json.loads(made["metadata"]["annotations"]["slipway.dev/runs"]).keys() == {first, second}
    # again: the same runs, and no other object
    assert desk.submit(desk.job("first", FIRST), desk.job("second", SECOND, inputs=inputs)) == [first, second]
    assert len(desk.cluster.get("jobset", namespace=desk.namespace)) == 1
    assert desk.set_of(first)["metadata"]["uid"] == made["metadata"]["uid"]


def test_a_stage_that_fails_for_good_ends_the_set_and_those_after_it_are_told_so(desk: Desk) -> None:
    inputs = {"text": {"job": "first", "output": "results"}}
    first, second = desk.submit(
        desk.job("first", "print('no use'); sys.exit(3)"), desk.job("second", SECOND, inputs=inputs)
    )
    result = desk.result(first)
    assert (result.outcome, result.reason) == ("failed", Reason.USER_ERROR)
    ended = desk.until("the set's failure", lambda: condition(desk.set_of(first), "Failed"), first)
    assert ended is not None
    assert ended["reason"] == "FailJobSetFailurePolicyAction", ended
    assert desk.pods(second) == []  # nothing of it ever started
    desk.launcher("reap")
    found = desk.status(second)
    assert (found["state"], found["reason"]) == ("failed", "upstream_failed"), found
    assert first in (found["detail"] or found["message"])


# ranks

RANKS = """
import socket
rank, steps = int(E["RANK"]), int(E["STEPS"])
host, port = E["MASTER_ADDR"], int(E["MASTER_PORT"])
print("meets at", host, flush=True)
resume = E.get("SLIPWAY_RESUME")
done = int(pathlib.Path(resume, "state").read_text()) if resume else 0
print("begins at", done, flush=True)
if rank == 0:
    peer = socket.create_server(("", port)).accept()[0]
else:
    while True:
        try: peer = socket.create_connection((host, port), 5); break
        except OSError: time.sleep(0.2)
    peer.settimeout(None)
lines = peer.makefile("r")
for step in range(done + 1, steps + 1):
    peer.sendall(f"{rank + step}\\n".encode())
    line = lines.readline()
    if not line: sys.exit("connection lost")
    print("step", step, rank + step + int(line), flush=True)
    time.sleep(float(E["PACE"]))
    folder = pathlib.Path(E["SLIPWAY_OUTPUTS"], "checkpoints", f".checkpoint-{step}"); folder.mkdir(parents=True)
    (folder / "state").write_text(str(step)); (folder / "done").touch()
    folder.rename(folder.with_name(f"checkpoint-{step}"))
(out / "count").write_text(str(steps))
"""


def ranks(desk: Desk, name: str, steps: int, pace: float = 1.0, **changes: Any) -> dict[str, Any]:
    """Two ranks that add up their numbers in every step, and save each."""
    checkpoints = {"kind": "checkpoints", "match": "checkpoint-*", "done": "done"}
    return desk.job(
        name,
        RANKS,
        outputs={"results": {}, "checkpoints": checkpoints},
        env={"STEPS": str(steps), "PACE": str(pace)},
        resources={"nodes": 2, "cpus": 0.1, "memory": "256Mi"},
        **changes,
    )


def steps_in(log: str) -> list[int]:
    return [int(line.split()[1]) for line in log.splitlines() if line.startswith("step ")]


def goes_on_from_its_newest_checkpoint(desk: Desk, run: str, attempt: int) -> None:
    """Each rank of the attempt began where the attempts before it had saved last, and computed nothing twice."""
    saved = max(step for earlier in desk.view(run).attempts[: attempt - 1] for step in earlier.checkpoints)
    for member in ("main-0", "main-1"):
        log = desk.log(run, attempt, member)
        assert f"\nbegins at {saved}\n" in log, log
        assert min(steps_in(log), default=saved + 1) == saved + 1


def test_ranks_on_two_nodes_meet_by_name_and_a_lost_node_costs_no_more_than_the_last_step(
    desk: Desk, cluster: Cluster
) -> None:
    cluster.node(2)
    # no silence is waited out: a set's higher restart number proves the attempt before it dead
    (run,) = desk.submit(ranks(desk, "pair", 40, timing={"beat": "1s", "stale": "20m", "fence": "15m"}))
    desk.until("checkpoint 3", lambda: max(desk.checkpoints(run), default=0) >= 3, run)
    pods = {one["spec"]["nodeName"]: one["metadata"]["name"] for one in desk.pods(run)}
    assert pods.keys() == {"n1", "n2"}
    assert f"\nmeets at {run}-main-0-0.{run}\n" in desk.log(run, 1, "main-1")
    cluster.node(2).kill()
    try:
        desk.until("the lost pod is told of", lambda: "hangs in Terminating" in desk.look(run).evidence, run)
        said = desk.look(run)
        assert (said.active, said.phase, said.reason) == (True, "stopping", "lost")
        assert said.evidence.startswith(f"pod {pods['n2']} hangs in Terminating: its node n2 does not answer")
        # the other rank computes nothing by itself, and nothing was started beside the lost one
        assert {one["metadata"]["name"] for one in desk.pods(run)} == set(pods.values())
        assert desk.set_of(run)["status"].get("restarts", 0) == 0
        _, _, advice = said.evidence.partition("gone for good: kubectl ")
        assert advice.startswith("taint node n2 ")
        cluster.kubectl(*advice.split())
        desk.until("the next attempt", lambda: len(desk.view(run).attempts) > 1, run)
        result = desk.result(run, limit=300)
    finally:
        cluster.kubectl("taint", "node", "n2", "node.kubernetes.io/out-of-service-", check=False)
        cluster.node(2).start()
    assert (result.outcome, result.attempt) == ("succeeded", 2)
    places = desk.placements(run, "main-0")
    assert [(one.kind, one.generation) for one in places] == [("set", 0), ("set", 1)]
    assert len({one.where for one in places}) == 1  # one set, which restarted as a whole
    goes_on_from_its_newest_checkpoint(desk, run, 2)
    assert steps_in(desk.log(run, 2))[-1] == 40
    ended = desk.until("the set's end", lambda: condition(desk.set_of(run), "Completed"), run)
    status = desk.set_of(run)["status"]
    assert status["restarts"] == 1, ended
    assert status.get("restartsCountTowardsMax", 0) == 0  # a lost node is nobody's failure
