"""Exactly once under everything at once: requests lost before and after they took effect, 429, 500, slow answers, and
the submitter killed at random moments and run again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import urllib3

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.access.login import login
from launcher.backends.kubernetes.api import Api, hang_up
from launcher.backends.kubernetes.objects import JOB
from launcher.backends.kubernetes.watch.event_cache import lines
from launcher.spec.hashing import run_id
from launcher.store import open_store
from launcher.store.layout import RunKeys
from tests.integration.kubernetes.conftest import Place
from tests.integration.kubernetes.submitter import many, small
from tests.support.cluster.proxy import Kind

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

KINDS = (Kind.DROP_BEFORE, Kind.DROP_AFTER, Kind.ERROR_500, Kind.ERROR_500_AFTER, Kind.TOO_MANY, Kind.SLOW)
ROOT = Path(__file__).parents[3]


class Witness(threading.Thread):
    """Sees every Job that is ever made in a namespace, past the proxy: name -> the uids it had. The API server ends
    the watch of a client that falls behind, as on a busy machine; the next one goes on where that one ended, so that
    nothing is missed between them.

    fault  why it could not see everything; "" if it did
    """

    def __init__(self, namespace: str) -> None:
        super().__init__(daemon=True)
        self.api = Api(login())
        self.uids: dict[str, set[str]] = defaultdict(set)
        self.path, self.seen, self.fault, self.told = JOB.path(namespace), "", "", False
        self.response = self._watch()

    def _watch(self) -> Any:
        since = {"resourceVersion": self.seen} if self.seen else {}
        return self.api.stream(self.path, query={"watch": "1", **since}, read=2000)

    def run(self) -> None:
        while not self.told:
            try:
                for line in lines(self.response):
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        self.fault = str(event["object"])
                        return
                    metadata = event["object"]["metadata"]
                    self.seen = metadata["resourceVersion"]
                    self.uids[metadata["name"]].add(metadata["uid"])
            except urllib3.exceptions.HTTPError as error:
                if not self.told:
                    print("the witness' watch:", error)
            finally:
                hang_up(self.response)
            if not self.told:
                self.response = self._watch()

    def end(self) -> None:
        self.told = True
        with suppress(ValueError):  # it has ended by itself
            self.response.shutdown()
        self.join(10)
        self.api.close()


@pytest.fixture(autouse=True)
def credentials(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in place.cluster.s3.environment.items():
        monkeypatch.setenv(name, value)


def storm(
    place: Place, count: int, kills: int, seed: int, capsys: pytest.CaptureFixture[str], nodes: str = "none"
) -> None:
    rng = random.Random(seed)
    url, namespace, mark = place.cluster.s3.url(), place.namespace, f"storm-{seed}"
    witness = Witness(namespace)
    witness.start()
    with place.cluster.proxy(seed) as proxy:
        environment = {
            **os.environ,
            "KUBECONFIG": str(proxy.kubeconfig),
            "PYTHONPATH": str(ROOT),
        }
        command = [
            sys.executable,
            "-m",
            "tests.integration.kubernetes.submitter",
            str(count),
            mark,
            namespace,
            url,
            nodes,
        ]
        killed, runs, began = 0, 0, time.monotonic()
        with proxy.storm(0.15, KINDS, delay=0.1):
            while True:
                runs += 1
                process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE)
                try:
                    # the first kills come early, when little is there; later ones further in
                    told = process.communicate(timeout=rng.uniform(0.5, 4.0 + runs) if killed < kills else 600)[1]
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                    killed += 1
                    continue
                if process.returncode == 0:
                    break
                assert process.returncode == 4, told.decode()  # unreachable for too long: again, as a user would
                assert runs < 50 + kills
        took = time.monotonic() - began
        faults = {kind: proxy.faults(kind) for kind in KINDS}
    expected = {run_id(one) for one in many(count, mark, namespace, url, nodes)}
    there = place.cluster.get("jobs", None, namespace, selector=names.SELECTOR)
    found = [one["metadata"]["name"] for one in there]
    deadline = time.monotonic() + 30
    while set(witness.uids) != expected and time.monotonic() < deadline:
        time.sleep(0.2)
    duplicates = sum(len(uids) - 1 for uids in witness.uids.values()) + len(set(found) - expected)
    lost = len(expected - set(found))
    store = open_store(url)
    unwritten = sum(store.head(RunKeys(run).job) is None for run in sorted(expected))
    witness.end()
    with capsys.disabled():
        drawn = ", ".join(f"{kind.value} {number}" for kind, number in faults.items())
        print(f"\nstorm: {count} jobs, {killed} kills in {runs} starts, {took:.0f} s; {drawn}; ", end="")
        print(f"duplicates {duplicates}, lost {lost}, without job.json {unwritten}")
    assert witness.fault == ""
    assert (duplicates, lost, unwritten) == (0, 0, 0)
    assert set(witness.uids) == expected
    assert sum(faults.values()) > count / 20
    assert killed > 0


def test_the_witness_goes_on_where_its_watch_ended(place: Place) -> None:
    """What came and went in between counts as well: else a duplicate might go unseen."""
    witness = Witness(place.namespace)
    witness.start()

    def made(name: str) -> None:
        one = small(name, place.namespace)
        handles = dict(place.backend.submit(place.backend.render([one]), [one]))
        place.cluster.wait_for("its Job", lambda: place.get("job", run_id(one)))
        runs.append(run_id(one))
        if len(runs) == 2:
            place.backend.cancel(list(handles.values()))
            place.cluster.wait_for("its end", lambda: place.get("job", run_id(one)) is None)

    runs: list[str] = []
    made("first")
    place.cluster.wait_for("the first", lambda: list(witness.uids) == runs)
    again, held = witness._watch, threading.Event()
    witness._watch = lambda: (held.wait(), again())[1]  # type: ignore[method-assign]
    witness.response.shutdown()
    made("second")
    made("third")
    held.set()
    place.cluster.wait_for("all of them", lambda: sorted(witness.uids) == sorted(runs))
    witness.end()
    assert witness.fault == ""


def test_a_hundred(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    storm(place, 100, 5, 1, capsys)


@pytest.mark.nightly
@pytest.mark.alone
def test_a_thousand(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    storm(place, 1000, 30, 2, capsys)


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.cluster("kwok")
def test_a_thousand_that_run(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """On fake nodes: controllers, scheduler and kubelets' stand-in are at work on the jobs while more are submitted."""
    place.cluster.kwok(20)
    storm(place, 1000, 30, 3, capsys, nodes="fake")

    def ended() -> bool:
        done = [one.get("status") or {} for one in place.cluster.get("jobs", None, place.namespace)]
        return all(one.get("succeeded", 0) + one.get("failed", 0) for one in done)

    began = time.monotonic()
    place.cluster.wait_for("the end of every Job", ended, 600)
    jobs = place.cluster.get("jobs", None, place.namespace)
    assert {(one["status"].get("succeeded"), one["status"].get("failed")) for one in jobs} == {(1, None)}
    assert len(place.cluster.get("pods", None, place.namespace)) == len(jobs) == 1000
    with capsys.disabled():
        print(f"1000 jobs ended, one pod each, {time.monotonic() - began:.0f} s after the storm")
