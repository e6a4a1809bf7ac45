"""Several stages and several ranks on a real JobSet controller."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.reasons import Reason
from tests.cluster.jobs.several import Desk, condition, steps_in
from tests.support.cluster.cluster import Cluster
from tests.support.engine import Engine

pytestmark = [pytest.mark.cluster("jobset", "dns"), pytest.mark.nightly, pytest.mark.timeout(900)]
JOBS = Path(__file__).with_name("jobs")


# no silence is waited out: a set's higher restart number proves the attempt before it dead
PATIENT = {"beat": "1s", "stale": "20m", "fence": "15m"}

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


@contextmanager
def lost_for_good(desk: Desk, run: str) -> Iterator[None]:
    """The second node dies under a run with a rank on it. The launcher says how it is given up, which is done."""
    node = desk.cluster.node(2)
    before = {one["metadata"]["name"]: one["spec"]["nodeName"] for one in desk.pods(run)}
    (pod,) = [name for name, where in before.items() if where == node.name]
    node.kill()
    try:
        desk.until("the lost pod is told of", lambda: "hangs in Terminating" in desk.look(run).evidence, run)
        said = desk.look(run)
        assert (said.active, said.phase, said.reason) == (True, "stopping", "lost")
        assert said.evidence.startswith(f"pod {pod} hangs in Terminating: its node {node.name} does not answer")
        assert said.evidence in desk.launcher("status", run, "-o", "json")
        # the other rank computes nothing by itself, and nothing was started beside the lost one
        assert {one["metadata"]["name"] for one in desk.pods(run)} == set(before)
        assert restarts(desk, run) == (0, 0)
        _, _, advice = said.evidence.partition("gone for good: kubectl ")
        assert advice.startswith(f"taint node {node.name} ")
        desk.cluster.kubectl(*advice.split())
        desk.until("the next attempt", lambda: len(desk.view(run).attempts) > 1, run)
        yield
    finally:
        desk.cluster.kubectl("taint", "node", node.name, "node.kubernetes.io/out-of-service-", check=False)
        node.start()


def restarts(desk: Desk, run: str) -> tuple[int, int]:
    """Of the set: all, and those that count."""
    status = desk.set_of(run).get("status") or {}
    return status.get("restarts", 0), status.get("restartsCountTowardsMax", 0)


def test_ranks_on_two_nodes_meet_by_name_and_a_lost_node_costs_no_more_than_the_last_step(
    desk: Desk, cluster: Cluster
) -> None:
    cluster.node(2)
    (run,) = desk.submit(desk.ranks("pair", 40, timing=PATIENT))
    desk.until("checkpoint 3", lambda: max(desk.checkpoints(run), default=0) >= 3, run)
    assert {one["spec"]["nodeName"] for one in desk.pods(run)} == {"n1", "n2"}
    where = f"\nmeets at {run}-main-0-0.{run}\n"  # pieces of a log come by themselves, after a checkpoint or before
    desk.until("the other rank's log", lambda: where in desk.log(run, 1, "main-1"), run)
    with lost_for_good(desk, run):
        result = desk.result(run, limit=300)
    assert (result.outcome, result.attempt) == ("succeeded", 2)
    places = desk.placements(run, "main-0")
    assert [(one.kind, one.generation) for one in places] == [("set", 0), ("set", 1)]
    assert len({one.where for one in places}) == 1  # one set, which restarted as a whole
    desk.goes_on_from_its_newest_checkpoint(run, 2)
    assert steps_in(desk.log(run, 2))[-1] == 40
    desk.until("the set's end", lambda: condition(desk.set_of(run), "Completed"), run)
    assert restarts(desk, run) == (1, 0)  # a lost node is nobody's failure


def test_torchrun_on_two_nodes_reduces_over_gloo_and_goes_on_after_one_is_lost(
    desk: Desk, cluster: Cluster, engine: Engine, cpu_image: str
) -> None:
    cluster.node(2)
    (desk.path / "programs").mkdir()
    shutil.copy(JOBS / "reduce.py", desk.path / "programs")
    steps = 40
    job = desk.ranks("reduce", steps, timing=PATIENT) | {
        "image": cluster.import_image(engine, cpu_image),
        "code": "programs",
        "command": ["torchrun", "reduce.py"],  # who, where and how many: the runtime's variables
        "resources": {"nodes": 2, "cpus": 0.5, "memory": "1500Mi"},
    }
    (run,) = desk.submit(job)
    desk.until("checkpoint 3", lambda: max(desk.checkpoints(run), default=0) >= 3, run, 300)
    assert {one["spec"]["nodeName"] for one in desk.pods(run)} == {"n1", "n2"}
    for rank in (0, 1):
        where = f"rank {rank} of 2 meets at {run}-main-0-0.{run}\n"
        desk.until("its log", lambda rank=rank, where=where: where in desk.log(run, 1, f"main-{rank}"), run)  # type: ignore[misc]
    with lost_for_good(desk, run):
        result = desk.result(run, limit=300)
    assert (result.outcome, result.attempt) == ("succeeded", 2)
    desk.goes_on_from_its_newest_checkpoint(run, 2)
    desk.launcher("gather", run, "--to", "gathered")
    (weight,) = (desk.path / "gathered").rglob("weight")
    # what an undisturbed training gives: the mean of (0 + step) and (1 + step), over all steps
    assert json.loads(weight.read_text()) == [sum(step + 0.5 for step in range(1, steps + 1))] * 4


# who restarts what, and what counts


def test_a_rank_that_fails_for_good_ends_the_set_at_once(desk: Desk) -> None:
    job = desk.ranks("hopeless", 3)
    job["command"][-1] += "\nif rank == 1: sys.exit('no use')\n"
    (run,) = desk.submit(job)
    result = desk.result(run)
    assert (result.outcome, result.reason, result.attempt) == ("failed", Reason.USER_ERROR, 1)
    ended = desk.until("the set's failure", lambda: condition(desk.set_of(run), "Failed"), run)
    assert ended is not None
    assert restarts(desk, run)[0] <= 1  # the failed rank may be seen before the leader, which alone says "never again"
    assert len(desk.view(run).attempts) == 1


def test_a_failure_that_may_be_tried_again_restarts_the_set_and_counts(desk: Desk) -> None:
    job = desk.ranks("again", 4, limits={"deadline": "10m", "grace": "5s", "retries": 1})
    job["command"][-1] = job["command"][-1].replace(
        "lines = peer", "if rank == 0 and E['SLIPWAY_ATTEMPT'] == '1': sys.exit('once')\nlines = peer"
    )
    (run,) = desk.submit(job)
    result = desk.result(run)
    assert (result.outcome, result.attempt) == ("succeeded", 2)
    assert restarts(desk, run) == (1, 1)
    first = desk.exit(run, 1, "main-0")
    assert (first.reason, first.code) == (Reason.USER_ERROR, 1)
    assert [one.generation for one in desk.placements(run, "main-0")] == [0, 1]


def test_an_evicted_rank_restarts_the_set_which_counts_nothing_and_goes_on(desk: Desk) -> None:
    (run,) = desk.submit(desk.ranks("evicted", 60))
    desk.until("checkpoint 3", lambda: max(desk.checkpoints(run), default=0) >= 3, run)
    pod = desk.until("its pod", lambda: desk.pod(run, rank=1), run)
    desk.evict(pod["metadata"]["name"])
    result = desk.result(run)
    assert (result.outcome, result.attempt) == ("succeeded", 2)
    assert desk.exit(run, 1, "main-1").reason is Reason.PREEMPTED
    # what the other rank made of its broken connection is no failure of its own
    left = desk.view(run).attempts[0].exits.get("main-0")
    assert left is None or left.reason in (Reason.PREEMPTED, Reason.INFRASTRUCTURE)
    desk.goes_on_from_its_newest_checkpoint(run, 2)
    assert restarts(desk, run) == (1, 0)
