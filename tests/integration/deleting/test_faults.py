"""A gc on a real S3 server behind a network that drops, doubles, cuts and delivers late."""

from __future__ import annotations

import os
import random

import pytest

from launcher.deleting.choose import DeletionSelection
from launcher.deleting.delete import carry_out
from launcher.deleting.plan import plan_gc
from launcher.spec.hashing import run_id
from launcher.store.layout import BLOBS, DELETING, RunKeys
from launcher.store.opening import open_store
from tests.integration.deleting.stores import assert_nothing_torn, keys, made, overlay
from tests.support.faultproxy import FaultProxy, Kind
from tests.support.s3 import ENVIRONMENT, S3Server

RATES = {
    Kind.LATE: 0.1,
    Kind.DOUBLE: 0.1,
    Kind.DROP_BEFORE: 0.03,
    Kind.DROP_AFTER: 0.05,
    Kind.ERROR_500: 0.03,
    Kind.ERROR_500_AFTER: 0.03,
    Kind.CUT_BODY: 0.03,
}


@pytest.mark.s3
def test_what_comes_late_is_collected(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    seed = int(os.environ.get("SLIPWAY_STORM_SEED") or random.SystemRandom().randrange(1 << 32))
    bucket = s3_server.bucket()
    store = open_store(s3_server.url(bucket))
    runs = [made(store, f"made-{number}") for number in range(12)]
    overlay(store)
    with FaultProxy(s3_server.port, seed=seed) as proxy:
        faulty = open_store(s3_server.url(bucket, endpoint=proxy.endpoint))
        with proxy.storm(RATES):
            carry_out(faulty, plan_gc(faulty, DeletionSelection(keep=0), grace=-1.0), verb="gc")
        proxy.settle()  # what is late comes now
        assert sum(proxy.faults(kind) for kind in RATES), f"seed {seed}"
    assert_nothing_torn(store, *runs)
    carry_out(store, plan_gc(store, DeletionSelection(), grace=-1.0), verb="gc")
    tombstones = {key for job in runs for key in RunKeys(run_id(job)).tombstone}
    assert keys(store, "runs/") == tombstones, f"seed {seed}"
    assert keys(store, "works/") == set(), f"seed {seed}"
    assert keys(store, BLOBS) == set(), f"seed {seed}"
    # an intent that came after its own withdrawal is void with its process
    assert len(keys(store, DELETING)) <= 1, f"seed {seed}"
