"""Several stages and several ranks on a real JobSet controller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.reasons import Reason
from tests.cluster.jobs.several import Desk, condition
from tests.support.cluster.cluster import Cluster

pytestmark = [pytest.mark.cluster("jobset", "dns"), pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture
def desk(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    cluster.jobset()
    for name, value in cluster.s3.environment.items():
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
    assert ended["reason"] == "FailJobSetFailurePolicyAction", ended
    assert desk.pods(second) == []  # nothing of it ever started
    desk.launcher("reap")
    found = desk.status(second)
    assert (found["state"], found["reason"]) == ("failed", "upstream_failed"), found
    assert first in (found["detail"] or found["message"])
