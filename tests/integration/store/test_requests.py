"""How many requests the reading verbs cost on a real S3 server: each counted by the proxy in front of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.protocol.records import Beat
from launcher.reasons import Reason
from launcher.spec.model import Output
from launcher.store.base import Store
from launcher.store.opening import open_store
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.support.faultproxy import FaultProxy
from tests.support.s3 import S3Server

pytestmark = pytest.mark.s3

LAUNCHER = Path(sys.executable).with_name("launcher")
# status and cancel read a folder's pages, the sample of 16 finished runs that the cache is compared with, and the clock
AROUND = 16 + 8


@pytest.fixture
def proxy(s3_server: S3Server, tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.port) as proxy:
        bucket = s3_url.removeprefix("s3://").partition("/")[0]
        monkeypatch.setenv("SLIPWAY_STORE", s3_server.url(bucket, endpoint=proxy.endpoint))
        for name in ("CACHE", "STATE", "CONFIG"):
            monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
        monkeypatch.chdir(tmp_path)
        yield proxy


@pytest.fixture
def store(s3_url: str) -> Store:
    return open_store(s3_url)


def asked(proxy: FaultProxy, *words: str, code: int = 0) -> tuple[int, str]:
    """(requests of one call, its output)."""
    before = len(proxy.seen)
    done = subprocess.run([LAUNCHER, *words], capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == code, done.stderr
    seen = [request for request, _ in proxy.seen[before:]]
    print(words, len(seen), Counter((each.method, "list" if "list-type" in each.query else "") for each in seen))
    return len(seen), done.stdout


def living(store: Store, count: int, *, attempts: int = 1, replicas: int = 1) -> list[str]:
    beat = Beat(seq=3, phase="running", step=50, total=100, checkpoint=40, running=30.0)
    outputs = {"model": Output(), "checkpoints": Output(kind="checkpoints")}
    earlier = [FakeAttempt(reason=Reason.PREEMPTED, checkpoints=[10 * k]) for k in range(attempts - 1)]
    return [
        write_run(
            store,
            fake_job("live", config={"k": k, "of": attempts}, outputs=outputs, replicas=replicas, labels={"k": str(k)}),
            [*earlier, FakeAttempt(ended=None, beat=beat, checkpoints=[20, 40])],
            outcome=None,
        )
        for k in range(count)
    ]


def test_an_open_run_costs_four_requests_once_it_is_known(proxy: FaultProxy, store: Store) -> None:
    """Its prefix, its attempts, the last attempt, and its beat. It was 15, and more with each attempt."""
    runs = living(store, 10)
    first, cold = asked(proxy, "status", "-o", "json")
    again, warm = asked(proxy, "status", "-o", "json")
    assert all(run in warm for run in runs)
    assert warm.count('"checkpoint": 40') == 10
    assert warm == cold
    assert again <= 4 * len(runs) + AROUND
    assert first <= 10 * len(runs) + AROUND


def test_attempts_that_are_over_cost_nothing(proxy: FaultProxy, store: Store) -> None:
    living(store, 4, attempts=6)
    asked(proxy, "status")
    again, shown = asked(proxy, "status")
    assert shown.count(" running ") == 8  # state and phase
    assert again <= 4 * 4 + AROUND


def test_ranks_cost_nothing_each(proxy: FaultProxy, store: Store) -> None:
    """A listing of the beats has the times of all of them."""
    living(store, 3, replicas=8)
    asked(proxy, "status")
    again, _ = asked(proxy, "status")
    assert again <= 6 * 3 + AROUND


def test_queued_runs_cost_one_request(proxy: FaultProxy, store: Store) -> None:
    job = [fake_job("waits", config={"k": k}, backend="kubernetes") for k in range(10)]  # nobody to ask here
    runs = [write_run(store, one, [], outcome=None) for one in job]
    asked(proxy, "status")
    again, shown = asked(proxy, "status")
    assert all(run in shown for run in runs)
    assert again <= len(runs) + AROUND


def test_cancel_asks_only_for_runs_that_are_not_final(proxy: FaultProxy, store: Store) -> None:
    """It asked once per run, one after another: 20,123 requests for 20,000 runs."""
    for k in range(60):
        write_run(store, fake_job("done", config={"k": k}))
    runs = living(store, 4)
    asked(proxy, "status")
    count, shown = asked(proxy, "cancel", "-l", "k=2")
    assert [line.split()[0] for line in shown.splitlines()[1:]] == [runs[2]]
    # each open run: is it still open; the one that is meant: read its end, put the request, see what is left of it
    assert count <= 2 * len(runs) + 16 + AROUND
    count, shown = asked(proxy, "cancel", "--all")
    assert len(shown.splitlines()) == 1 + 4
    assert count <= 2 * len(runs) + 16 * 4 + AROUND


def test_cancel_without_a_cache_is_one_request_a_run(proxy: FaultProxy, store: Store) -> None:
    for k in range(60):
        write_run(store, fake_job("done", config={"k": k}))
    count, shown = asked(proxy, "cancel", "-l", "team=agents")
    assert shown.splitlines()[1:] == []
    assert count <= 60 + AROUND


def test_the_cost_of_many_runs_takes_no_more_requests_than_their_status(proxy: FaultProxy, store: Store) -> None:
    """Four for a living run, and one for each of a sample of those that have ended."""
    (Path.cwd() / "slipway.yaml").write_text("prices: {cpu: 0.10 USD}\n")
    open_runs = living(store, 5)
    for number in range(40):
        write_run(store, fake_job("over", config={"k": number}), [FakeAttempt()])
    asked(proxy, "cost", "-o", "json")
    again, warm = asked(proxy, "cost", "-o", "json")
    assert warm.count('"final": true') == 40
    assert again <= 4 * len(open_runs) + 16 + AROUND
