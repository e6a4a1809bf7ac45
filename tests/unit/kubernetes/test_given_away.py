"""A run that Kueue has given to another cluster (MultiKueue), as its own cluster has it: shapes of Kueue 0.14. No
second real cluster has been behind a queue yet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.backends.base import BackendObservation
from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.enter import argv, logs
from launcher.backends.kubernetes.objects import JOB, WORKLOAD
from launcher.backends.kubernetes.watch.snapshot import Owner, Snapshot
from launcher.errors import NotFound

RUN = "far-0123456789ab"
TOLD = "queue everywhere: Kueue has given it to cluster west (MultiKueue); its pods are there, not in this one"


def snapshot(cluster: str = "", **spec: Any) -> Snapshot:
    """The run's Job and Workload; `cluster`: which one Kueue has chosen."""
    metadata = {"name": RUN, "namespace": "ml", "uid": "u", "labels": {names.QUEUE: "everywhere"}}
    metadata["annotations"] = {names.RUNS: json.dumps({RUN: "h"}), names.FINGERPRINT: "f"}
    mine = {"kind": "Job", "name": RUN, "uid": "u"}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}
    check = {"name": "clusters", "state": "Pending", "message": ""}
    status: dict[str, Any] = {"conditions": [reserved], "admissionChecks": [check]}
    found = Snapshot("office")
    found.put(JOB, {"metadata": metadata, "spec": spec, "status": {}})
    about = {"name": f"job-{RUN}", "namespace": "ml", "ownerReferences": [mine]}
    chosen = {"clusterName": cluster} if cluster else {}
    found.put(WORKLOAD, {"metadata": about, "spec": {}, "status": {**status, **chosen}})
    return found


class Cluster(Connection):
    """Answers with the next of these at each look."""

    def __init__(self, *looks: Snapshot) -> None:
        super().__init__({"namespace": "ml"})
        self.looks = list(looks)

    def look_closely(self, run: str) -> tuple[BackendObservation | None, Snapshot, Owner | None]:
        seen = self.looks.pop(0)
        return seen.observe(run), seen, next(iter(seen.owners.values()))


@pytest.mark.parametrize("spec", [{"suspend": True}, {"managedBy": names.MULTIKUEUE}])
def test_its_live_output_is_not_waited_for(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows the run goes on from the store at once, where the other cluster's pods write."""
    monkeypatch.setattr(logs, "POLL", 0.0)
    waits, given = snapshot(**spec), snapshot("west", **spec)
    seen = given.observe(RUN)
    assert seen is not None
    with pytest.raises(NotFound) as caught:
        list(logs.logs(Cluster(waits, waits, given), seen.handle, "main", 0, False))
    assert str(caught.value) == f"{RUN}: {TOLD}"


def test_what_needs_its_pod_says_where_that_is() -> None:
    with pytest.raises(NotFound) as caught:
        argv.execute(Cluster(snapshot("west", suspend=True)), RUN, "main-0", ["true"], tty=False)
    assert str(caught.value) == f"{RUN}: main-0 has no pod that runs: {TOLD}"


def test_a_job_that_runs_here_is_in_no_other_cluster() -> None:
    """Neither suspended nor another controller's: whatever its Workload says."""
    found = snapshot("west", suspend=False)
    (carrier,) = found.owners.values()
    assert found.elsewhere(carrier) == ""
