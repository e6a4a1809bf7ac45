"""Commands and ports of a real pod, by kubectl and without it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.backends.base import Handle
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.errors import NotFound
from launcher.spec.hashing import run_id
from tests.integration.backend.harness import Harness, wait_for
from tests.integration.backend.kubernetes import opened
from tests.integration.backend.test_backend import put
from tests.support.cluster.programs import BIN
from tests.support.forwarding import fetch, forwarding

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(params=["kubectl", "websocket"])
def entered(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Harness, KubernetesBackend, Handle]]:
    """A run whose one pod is at work."""
    with opened(request, tmp_path, monkeypatch) as harness:
        monkeypatch.setenv("PATH", str(BIN) if request.param == "kubectl" else str(tmp_path))
        backend = harness.backend
        assert isinstance(backend, KubernetesBackend)
        (handle,) = put(harness, harness.job("one"))
        end = time.monotonic() + 120
        while (seen := backend.look_up(handle.run)) is None or seen.phase != "running":
            assert time.monotonic() < end, (seen, backend.look_closely(handle.run)[0])
            time.sleep(0.2)
        argv = backend.execute(handle.run, "main-0", ["true"], tty=False)
        assert (argv[0] == "kubectl") == (request.param == "kubectl")
        yield harness, backend, handle
        harness.let_go()


def test_a_command_gives_its_output_and_exit_code(entered: tuple[Harness, KubernetesBackend, Handle]) -> None:
    _, backend, handle = entered
    command = ["sh", "-c", 'echo out "$0"; echo err >&2; exit 7', "a b"]
    argv = backend.execute(handle.run, "main-0", command, tty=False)
    done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (7, b"out a b\n")
    assert b"err\n" in done.stderr
    with pytest.raises(NotFound, match="main-1 has no pod that runs"):
        backend.execute(handle.run, "main-1", ["true"], tty=False)


def test_a_port_is_brought_here(entered: tuple[Harness, KubernetesBackend, Handle]) -> None:
    _, backend, handle = entered
    serve = ["python3", "-m", "http.server", "8123", "--directory", "/etc", "--bind", "0.0.0.0"]
    call = "import socket; socket.create_connection(('127.0.0.1', 8123), 5)"
    knock = backend.execute(handle.run, "main-0", ["python3", "-c", call], tty=False)
    with _running(backend.execute(handle.run, "main-0", serve, tty=False)):
        # kubectl ends for good at the first connection that finds nobody listening
        wait_for(lambda: not subprocess.run(knock, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode, 120)
        with forwarding(backend.forward(handle.run, "main-0", [(0, 8123)])) as port:
            for _ in range(3):
                assert b"user:x:1000" in fetch(f"http://127.0.0.1:{port}/passwd")


def test_nothing_runs_any_more(entered: tuple[Harness, KubernetesBackend, Handle]) -> None:
    harness, backend, handle = entered
    harness.let_go()
    wait_for(lambda: not getattr(backend.look_up(handle.run), "active", False), 60)
    with pytest.raises(NotFound):
        backend.execute(handle.run, "main-0", ["true"], tty=False)
    with pytest.raises(NotFound, match="has nothing of it"):
        backend.forward(run_id(harness.job("other")), "main-0", [(1, 1)])


@contextmanager
def _running(argv: list[str]) -> Iterator[None]:
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=sys.stderr, stderr=sys.stderr)
    try:
        yield
    finally:
        process.terminate()
        process.communicate(timeout=30)
