"""`launcher forward` on the local backend: ports by number and by name, also those that the runtime picked."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob
from tests.integration.local.machine import Machine, wait_for
from tests.support.forwarding import fetch, forwarding

LAUNCHER = str(Path(sys.executable).with_name("launcher"))
SERVES = """
import http.server, threading
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"the page " * 100000)
    def log_message(self, *_): ...
def serve(): http.server.ThreadingHTTPServer(("127.0.0.1", int(E["SLIPWAY_PORT_WEB"])), Page).serve_forever()
if E["SERVES"] == "1": threading.Thread(target=serve, daemon=True).start()
(here / "begun").touch()
while not (here / "go").exists(): time.sleep(0.02)
"""


def held(here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serves: str) -> Iterator[ResolvedJob]:
    (tmp_path / "slipway.yaml").write_text(f"local: {{state: {here.state.path}}}\n")
    monkeypatch.setenv("SLIPWAY_STORE", here.store.url)
    monkeypatch.chdir(tmp_path)
    job = here.job("served", SERVES, role={"ports": {"web": 0}, "env": {"SERVES": serves}})
    here.submit(job)
    wait_for(lambda: (here.path / "begun").exists(), explain=here.explain)
    yield job
    (here.path / "go").touch()
    here.wait(job)


@pytest.fixture
def served(here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResolvedJob]:
    yield from held(here, tmp_path, monkeypatch, "1")


@pytest.fixture
def silent(here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResolvedJob]:
    yield from held(here, tmp_path, monkeypatch, "0")


def forward(job: ResolvedJob, port: str) -> subprocess.CompletedProcess[str]:
    words = [LAUNCHER, "forward", run_id(job), port]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_a_port_that_the_runtime_picked_is_brought_to_another(served: ResolvedJob) -> None:
    wait_for(lambda: forward(served, "web").returncode == 0)
    done = forward(served, "web")
    own = done.stdout.removeprefix("127.0.0.1:").partition(" ")[0]
    assert done.stdout == f"127.0.0.1:{own} is a port of the run itself: nothing to forward\n"
    with forwarding([LAUNCHER, "forward", run_id(served), "web:0"]) as port:
        assert port != int(own)
        for _ in range(3):
            assert fetch(f"http://127.0.0.1:{port}/") == b"the page " * 100000
    with forwarding([LAUNCHER, "forward", run_id(served), f"{own}:0"]) as port:
        assert fetch(f"http://127.0.0.1:{port}/").startswith(b"the page")
    taken = forward(served, f"80:{own}")
    assert (taken.returncode, taken.stderr) == (1, f"port {own}: Address already in use\n")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_it_holds_no_port_after_its_end(served: ResolvedJob, by: signal.Signals) -> None:
    wait_for(lambda: forward(served, "web").returncode == 0)
    own = forward(served, "web").stdout.removeprefix("127.0.0.1:").partition(" ")[0]
    with subprocess.Popen(
        ["env", "--default-signal=HUP", LAUNCHER, "forward", run_id(served), f"{own}:0"],  # nohup may have started us
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().partition("127.0.0.1:")[2].split()[0])
        assert fetch(f"http://127.0.0.1:{port}/").startswith(b"the page")
        process.send_signal(by)
        assert process.wait(60) == (-by if by is signal.SIGKILL else 128 + by)
        wait_for(lambda: closed(port))


def closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5.0).close()
    except ConnectionRefusedError:
        return True
    return False


def test_what_cannot_be_forwarded_is_said(silent: ResolvedJob) -> None:
    done = forward(silent, "web")
    assert (done.returncode, done.stdout) == (3, "")
    assert "web: the runtime picks this port, and the member is not ready yet" in done.stderr
    done = forward(silent, "wob")
    assert done.returncode == 2
    assert "wob: no such port; allowed: a number, web (picked at the start)" in done.stderr
