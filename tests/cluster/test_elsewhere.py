"""A run that waits for its next attempt in one cluster, looked at from another."""

from __future__ import annotations

import json

import pytest

from launcher.protocol.read import read_run
from launcher.store.layout import RunKeys
from tests.cluster.laptop import Laptop
from tests.integration.kubernetes.speaker import refusal, speaking

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_a_cluster_that_knows_nothing_of_a_run_does_not_end_it(laptop: Laptop) -> None:
    """As with Kueue, which suspends the Job of what it preempts. The other cluster is a server without objects."""
    (run,) = laptop.submit(laptop.counting("count", steps=20))
    laptop.wait_for_log(run, "step 3")
    patch = ("-n", laptop.namespace, "--type=merge", "-p")
    laptop.cluster.kubectl("patch", "job", run, *patch, '{"spec": {"suspend": true}}')
    exits = laptop.cluster.wait_for(
        "the end of its attempt", lambda: read_run(laptop.store, run).attempts[0].exits or None, 60
    )
    assert list(exits) == ["main-0"]
    home = laptop.environment["KUBECONFIG"]
    with speaking(lambda method, path, query: refusal(404, "NotFound")) as other:
        laptop.environment["KUBECONFIG"] = str(other.kubeconfig(laptop.path, laptop.namespace))
        assert laptop.status(run)["state"] == "starting"
        assert "another cluster" in laptop.launcher("status", run)
        rows = json.loads(laptop.launcher("reap", "-o", "json"))
        assert [(row["run"], row["did"]) for row in rows if row["run"] == run] == [(run, "unknown")]
    assert laptop.store.head(RunKeys(run).result) is None
    laptop.environment["KUBECONFIG"] = home
    laptop.cluster.kubectl("patch", "job", run, *patch, '{"spec": {"suspend": false}}')
    result = laptop.result(run)
    assert (result.outcome, result.attempt) == ("succeeded", 2)
