"""Runs that Kueue gives to another cluster: two control planes, a real Kueue in each, and a launcher that only sees the
first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.jobs.several import TUNING, Desk
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.dispatch import WEST, dispatching

pytestmark = [pytest.mark.cluster("kueue", "jobset", "dns"), pytest.mark.nightly, pytest.mark.timeout(1200)]
QUEUE = "everywhere"
BLOCK = {"queue": QUEUE}
GIVEN = f"Kueue has given it to cluster {WEST} (MultiKueue); its pods are there, not in this one"


class Office(Desk):
    """A desk whose queue has no pods of its own."""

    def __init__(self, cluster: Cluster, path: Path, west: Cluster) -> None:
        super().__init__(cluster, path)
        self.west = west
        west.launcher()  # the image on its node

    def reach(self) -> None:
        """Pods in the other cluster cannot start without this Secret, which Kueue does not copy."""
        secret = {**self.cluster.s3.environment, "SLIPWAY_TUNING": json.dumps(TUNING)}
        self.west.secret(self.namespace, "store", secret)

    def let_go(self, run: str) -> None:
        """As somebody who has a context of the other cluster."""
        home = self.environment["KUBECONFIG"]
        self.environment["KUBECONFIG"] = str(self.west.kubeconfig)
        try:
            super().let_go(run)
        finally:
            self.environment["KUBECONFIG"] = home

    def there(self, kind: str = "job") -> list[str]:
        return [one["metadata"]["name"] for one in self.west.get(kind, namespace=self.namespace)]

    def says(self, run: str, words: str) -> dict[str, Any]:
        """Waits until `status` says it."""
        return self.until(
            words, lambda: next((one for one in [self.status(run)] if words in str(one["detail"])), None), run
        )


@pytest.fixture
def office(
    cluster: Cluster, other_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Office]:
    for each in (cluster, other_cluster):
        each.jobset()
        each.kueue()
    other_cluster.dns()
    for name, value in {**cluster.s3.environment, "KUBECONFIG": str(cluster.kubeconfig)}.items():
        monkeypatch.setenv(name, value)
    made = Office(cluster, tmp_path / "office", other_cluster)
    with dispatching(cluster, other_cluster, made.namespace, QUEUE):
        yield made


def test_a_job_runs_in_the_other_cluster_and_is_told_of_here(office: Office) -> None:
    job = office.until_told("far", kubernetes=BLOCK)
    (run,) = office.submit(job)
    told = office.says(run, GIVEN)  # as long as its pod has not begun: its Secret is missing
    assert told["state"] == "queued"  # nobody here knows more until its runtime writes into the store
    assert office.pods(run) == []
    office.reach()
    office.wait_for_log(run, "up")
    office.wait_for_state(run, "running")
    assert office.pods(run) == []
    # it has no pod here, and whoever wants to enter one is told where it is
    assert GIVEN in office.launcher("exec", run, "--", "true", code=None)
    # what Kueue has added is not taken for a change of the job
    assert office.submit(job) == [run]
    office.let_go(run)
    assert office.result(run).outcome == "succeeded"
    assert office.ended_job(run)["type"] == "Complete"
    assert office.status(run)["state"] == "succeeded"
    assert len(office.view(run).attempts) == 1
    assert office.submit(job) == [run]
    assert len(office.view(run).attempts) == 1


def test_a_job_that_fails_there_has_failed_here(office: Office) -> None:
    office.reach()
    (run,) = office.submit(office.job("fails", "print('so it ends', flush=True); sys.exit(3)", kubernetes=BLOCK))
    assert office.result(run).outcome == "failed"
    assert office.ended_job(run)["type"] == "Failed"
    told = office.status(run)
    assert (told["state"], told["reason"]) == ("failed", "user_error"), told
    assert "so it ends" in office.log(run)


def test_cancel_ends_it_in_both_clusters(office: Office) -> None:
    office.reach()
    (run,) = office.submit(office.counting("cancelled", 2000, kubernetes=BLOCK))
    office.wait_for_log(run, "step 2")
    office.launcher("cancel", run)
    office.wait_for_state(run, "cancelled")
    office.until(
        "its end in both", lambda: office.there() == [] and not office.cluster.get("job", run, office.namespace), run
    )
    assert len(office.view(run).attempts) == 1


def test_one_that_was_not_let_in_there_is_queued_and_is_cancelled(office: Office) -> None:
    office.west.kubectl(
        "patch", "clusterqueue", office.namespace, "--type=merge", "-p", '{"spec":{"stopPolicy":"Hold"}}'
    )
    (run,) = office.submit(office.counting("waits", 2, kubernetes=BLOCK))
    told = office.says(run, "admission check")
    assert (told["state"], told["reason"]) == ("queued", "capacity"), told
    office.launcher("cancel", run)
    office.wait_for_state(run, "cancelled")
    office.until("its end in both", lambda: office.there() == office.there("workloads.kueue.x-k8s.io") == [], run)
    assert office.view(run).attempts == ()


def test_two_ranks_of_a_jobset_meet_in_the_other_cluster(office: Office) -> None:
    office.reach()
    (run,) = office.submit(office.ranks("together", 6, kubernetes=BLOCK))
    assert office.result(run, 300).outcome == "succeeded"
    assert office.pods(run) == []
    assert "step 6" in office.log(run)
    (attempt,) = office.view(run).attempts
    assert sorted(attempt.claims) == ["main-0", "main-1"]
    office.until(
        "the JobSet's end here",
        lambda: office.set_of(run).get("status", {}).get("terminalState") == "Completed",
        run,
    )
    assert office.status(run)["state"] == "succeeded"
