"""One secret by each way into a pod; the store, the log, the cluster's objects and the pod's own view are searched."""

from __future__ import annotations

import json

import pytest

from tests.cluster.laptop import Laptop
from tests.support import canary
from tests.support.canary import SECRETS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_no_secret_comes_out_of_a_pod(laptop: Laptop) -> None:
    own = laptop.cluster.s3.environment
    # what else a Secret of the store may hold opens one, too
    laptop.cluster.secret(laptop.namespace, "store", {**own, "AZURE_STORAGE_KEY": SECRETS["store-key"]})
    laptop.cluster.secret(laptop.namespace, "hub", {"token": SECRETS["job-secret"]})
    laptop.environment |= {"MY_PASSWORD": SECRETS["environment"]}
    places = {"secrets": {"HF_TOKEN": "hub/token"}, "namespace": laptop.namespace, "store_secret": "store"}
    script = canary.CURIOUS + "\nprint('keys', [name for name in e if name.startswith(('AWS_', 'AZURE_'))], flush=True)"
    (run,) = laptop.submit(laptop.job("curious", script, secrets=["HF_TOKEN"], kubernetes=places))
    assert laptop.result(run).outcome == "succeeded"
    pod = laptop.ended_pod(run)["metadata"]["name"]
    stored, printed = laptop.launcher("logs", run), laptop.cluster.logs(pod, laptop.namespace)
    for log in (stored, printed):
        assert "raw *** url *** ***" in log
        assert "environ PermissionError" in log  # the runtime's, which the kubelet filled
        keys = next(line for line in log.splitlines() if line.startswith("keys "))
        assert own["AWS_SECRET_ACCESS_KEY"] not in log.replace("***", "")
        assert "SECRET" not in keys
        assert "AZURE" not in keys
        assert canary.found_in(log.encode()) == []
    seen = laptop.cluster.kubectl("get", "jobs,pods,events,configmaps", "-n", laptop.namespace, "-o", "yaml")
    assert canary.found_in(seen.encode()) == []
    said = laptop.launcher("status", run, "-o", "json") + laptop.launcher("render", laptop.path / "job.yaml")
    assert canary.found_in(said.encode()) == []
    for meta in laptop.store.scan(""):
        assert canary.found_in(laptop.store.get(meta.key) + meta.key.encode()) == [], meta.key
    assert json.loads(laptop.launcher("results", run, "-o", "json")) is not None
