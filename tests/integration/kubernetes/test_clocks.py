"""A cluster whose clock is not this machine's: what hangs there is told by its clock."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

import pytest

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.backend import OFTEN, KubernetesBackend, close_all
from launcher.backends.kubernetes.watch.reasons import TOO_LONG
from tests.integration.kubernetes.speaker import Answer, refusal, speaking
from tests.integration.kubernetes.test_feeds import one

RUN = "x-0123456789ab"
HOUR = 3600.0


@pytest.mark.parametrize("ahead", [-HOUR, HOUR], ids=["behind", "ahead"])
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize(("overdue", "hangs"), [(-5.0, False), (TOO_LONG + 20.0, True)])
def test_a_pod_hangs_by_the_clusters_clock(
    overdue: float, hangs: bool, watched: bool, ahead: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod in its grace period is healthy, however far the two clocks are apart. `overdue`: seconds since it should
    have gone, by the cluster's clock."""
    due = dt.datetime.fromtimestamp(time.time() + ahead - overdue, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    owner = {"kind": "Job", "name": RUN, "uid": "u", "controller": True}
    metadata = {"name": f"{RUN}-a", "namespace": "n", "uid": "p", "labels": {names.RUN: RUN}, "deletionTimestamp": due}
    pod = {"metadata": {**metadata, "ownerReferences": [owner]}, "status": {"phase": "Running"}}
    job = one(RUN)
    job["metadata"]["uid"] = "u"

    def answer(method: str, path: str, query: dict[str, str]) -> Answer:
        if "watch" in query:
            return 200, b""
        if path.endswith(("/jobs", "/pods")) and query.get("labelSelector") != names.JOBSET_NAME:
            items = [job if path.endswith("/jobs") else pod]
            return 200, {"metadata": {"resourceVersion": "1"}, "items": items}
        return (200, job) if path.endswith(f"/jobs/{RUN}") else refusal(404, "NotFound")

    with speaking(answer) as server:
        server.ahead = ahead
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        backend = KubernetesBackend({})
        for _ in range(2 * OFTEN if watched else 1):
            seen = backend.look_up(RUN)
        assert seen is not None
        assert ("hangs in Terminating" in seen.evidence) == hangs
        close_all()
