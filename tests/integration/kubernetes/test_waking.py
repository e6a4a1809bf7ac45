"""A laptop that slept for an hour in the middle of `logs --follow`: its connections are dead and its token has expired.

The server is real (HTTPS, on this machine), the dead connection is one on which nothing comes any more, and the sleep
is a jump between the two clocks, as a suspended machine has it.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import Handle
from launcher.backends.kubernetes import api
from launcher.backends.kubernetes.access import plugin, waking
from launcher.backends.kubernetes.access.login import login
from launcher.backends.kubernetes.backend import KubernetesBackend, close_all
from tests.integration.kubernetes.authorities import Authority, authority
from tests.integration.kubernetes.speaker import Answer, speaking
from tests.integration.kubernetes.test_logins import Program

__all__ = ["authority"]

RUN = "count-000000000001"
JOBS, PODS = "/apis/batch/v1/namespaces/n/jobs", "/api/v1/namespaces/n/pods"
MINE = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/run": RUN, "slipway.dev/role": "main"}


class Cluster:
    """One run with one pod. Its log has two lines: the second is written while the laptop sleeps, and the connections
    from before the sleep stay silent."""

    def __init__(self) -> None:
        self.slept = threading.Event()
        self.over = threading.Event()
        self.silent = threading.Event()  # a stream from before the sleep waits for its next line
        self.ended = False

    def answer(self, method: str, path: str, query: dict[str, str]) -> Answer:
        if path == f"{JOBS}/{RUN}":
            return 200, self._job()
        if path == f"{PODS}/p/log":
            return 200, self._log()
        if path == f"{PODS}/p":
            return 200, self._pod()
        if path == PODS:
            return 200, {"metadata": {"resourceVersion": "1"}, "items": [self._pod()]}
        if "jobset" in path:
            return 404, {"kind": "Status", "code": 404}
        return 200, {"metadata": {"resourceVersion": "1"}, "items": []}

    def _log(self) -> Iterator[bytes]:
        after = self.slept.is_set()
        yield b"step 1\n"
        if not after:
            self.silent.set()
            self.over.wait()
            return
        self.ended = True
        yield b"step 2\n"

    def _job(self) -> dict[str, Any]:
        notes = {"slipway.dev/runs": json.dumps({RUN: "h"})}
        metadata = {"name": RUN, "namespace": "n", "uid": "u", "annotations": notes, "labels": MINE}
        conditions = [{"type": "Complete", "status": "True"}] if self.ended else []
        return {"metadata": metadata, "spec": {}, "status": {"conditions": conditions, "active": int(not self.ended)}}

    def _pod(self) -> dict[str, Any]:
        owner = {"kind": "Job", "name": RUN, "uid": "u", "controller": True, "apiVersion": "batch/v1"}
        metadata = {"name": "p", "namespace": "n", "uid": "p", "labels": MINE, "ownerReferences": [owner]}
        state = {"terminated": {"exitCode": 0}} if self.ended else {"running": {}}
        status = {"phase": "Succeeded" if self.ended else "Running"}
        return {
            "metadata": metadata,
            "spec": {},
            "status": {**status, "containerStatuses": [{"name": "main", "state": state}]},
        }


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.over.set()
    close_all()


def test_logs_go_on_after_an_hour_of_sleep(
    cluster: Cluster, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep, wall = [0.0], time.time
    monkeypatch.setattr(waking, "LOOK", 0.05)
    monkeypatch.setattr(waking, "asleep", lambda: asleep[0])
    monkeypatch.setattr(api, "asleep", lambda: asleep[0])
    monkeypatch.setattr(plugin.time, "time", lambda: wall() + asleep[0])
    program = Program(tmp_path / "program")
    program.says(token="t-RUNS", expires=wall() + 600)
    with speaking(cluster.answer, authority.server, str(authority.ca)) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path, user=program.user())))
        backend = KubernetesBackend({"namespace": "n"})
        output: list[bytes] = []
        handle = Handle(RUN, "kubernetes", RUN, "h")

        def follow() -> None:
            output.extend(backend.logs(handle, "main", 0, False))

        reader = threading.Thread(target=follow, daemon=True)
        reader.start()
        assert cluster.silent.wait(60)
        program.says(token="t-RUNS", expires=wall() + 3600 + 600)
        server.admits = lambda sent: sent == "Bearer t-2"
        cluster.slept.set()
        asleep[0] = 3600.0
        reader.join(60)
        assert not reader.is_alive()
    assert b"".join(output) == b"step 1\nstep 2\n"
    assert program.runs == 2


def test_only_a_sleep_cuts_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two clocks drift by moments on a machine that is awake; a stream that was opened after a sleep is sound."""
    readings = [100.0, 103.0, 109.0, 109.0]
    looked = threading.Event()

    def clock() -> float:
        if len(readings) == 1:
            looked.set()
        return readings.pop(0) if len(readings) > 1 else readings[0]

    monkeypatch.setattr(waking, "LOOK", 0.01)
    monkeypatch.setattr(waking, "asleep", clock)
    cuts: list[str] = []

    class Response:
        closed = False

        def __init__(self, name: str) -> None:
            self.name = name

        def shutdown(self) -> None:
            cuts.append(self.name)

    streams = waking.Streams(lambda: cuts.append("woken"))
    before = streams.add(Response("before the sleep"), 95.0)
    after = streams.add(Response("after it"), 100.0)
    assert looked.wait(60)
    after.closed = before.closed = True
    assert cuts == ["woken", "before the sleep"]


def test_connections_ask_whether_the_other_end_is_there(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cable that was pulled is noticed after about a minute; client-go's first probe is after 30 s too."""

    def version(method: str, path: str, query: dict[str, str]) -> Answer:
        return 200, {}

    with speaking(version, authority.server, str(authority.ca)) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        options: list[int] = []
        connect = socket.socket.connect

        def connected(self: socket.socket, address: Any) -> None:
            connect(self, address)
            options.append(self.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
            options.append(self.getsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", socket.TCP_NODELAY)))

        monkeypatch.setattr(socket.socket, "connect", connected)
        api.Api(login()).get("/version")
    assert options[0] == 1
    assert options[1] == (30 if hasattr(socket, "TCP_KEEPIDLE") else options[1])
