"""images/vllm-serve/serve.py: when it is ready, how it ends. A stand-in answers for vLLM here, which takes a minute to
start; nightly the real one serves, for CPUs, from .venv-vllm, and in the image (test_build.py)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.engine import ROOT
from tests.support.s3 import free_port

PYTHON = Path(os.environ.get("SLIPWAY_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
SERVE = ROOT / "images" / "vllm-serve" / "serve.py"
# Says it is healthy at once, but answers only after `answers` seconds; each answer takes `takes`.
STAND_IN = """
import argparse, json, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
given, rest = parser.parse_known_args()
settings = json.load(open(rest[rest.index("--model") + 1] + "/settings.json"))
if settings.get("ends"):
    sys.exit(settings["ends"])
begun, running = time.monotonic(), 0
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        metrics = f'vllm:num_requests_running{{model_name="m"}} {running}.0\\n'
        self.reply(200, metrics if self.path == "/metrics" else "ok")
    def do_POST(self):
        global running
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if time.monotonic() - begun < settings.get("answers", 0):
            return self.reply(500, "loading")
        if body["model"] not in settings["names"]:
            return self.reply(404, "no such model")
        running += 1
        if body.get("max_tokens") != 1:
            time.sleep(settings.get("takes", 0))
        running -= 1
        self.reply(200, json.dumps({"choices": [1]}))
    def reply(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *_):
        pass
ThreadingHTTPServer(("127.0.0.1", given.port), Handler).serve_forever()
"""


class Serving:
    def __init__(self, folder: Path, process: subprocess.Popen[str], http: int, metrics: int) -> None:
        self.folder, self.process, self.http, self.metrics = folder, process, http, metrics

    def status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}{path}", timeout=5) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait(self, path: str, status: int) -> None:
        deadline = time.monotonic() + 30
        while self.status(path) != status:
            assert time.monotonic() < deadline, self.process.poll()
            time.sleep(0.02)


@contextmanager
def serving(folder: Path, config: dict[str, object], **settings: object) -> Iterator[Serving]:
    model = folder / "model"
    package = folder / "python" / "vllm" / "entrypoints" / "openai"
    for one in (model, package):
        one.mkdir(parents=True)
    (package / "api_server.py").write_text(STAND_IN)
    (model / "config.json").write_text("{}")
    (model / "settings.json").write_text(json.dumps({"names": ["model"], **settings}))
    file = folder / "serve.json"
    file.write_text(json.dumps({"model": str(model), **config}))
    http, metrics = free_port(), free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'images'}:{folder / 'python'}",
        "SLIPWAY_READY_FILE": str(folder / "ready"),
        "SLIPWAY_PORT_HTTP": str(http),
        "SLIPWAY_PORT_METRICS": str(metrics),
    }
    command = [sys.executable, str(SERVE), "--config", str(file)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield Serving(folder, process, http, metrics)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_ready_means_that_a_request_was_answered(tmp_path: Path) -> None:
    with serving(tmp_path, {}, answers=1.5) as server:
        server.wait("/health", 200)
        server.wait("/metrics", 200)  # vLLM listens and says that it is well
        assert server.status("/ready") == 503
        server.wait("/ready", 200)


def test_it_is_not_ready_when_an_adapter_does_not_answer(tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    with serving(tmp_path, {"adapters": {"mine": str(adapter)}, "start": 2}) as server:
        assert server.process.wait(30) != 0
        assert server.process.stdout is not None
        assert "no such model" in server.process.stdout.read()


def test_sigterm_lets_a_running_request_end(tmp_path: Path) -> None:
    with serving(tmp_path, {}, takes=1.5) as server:
        server.wait("/ready", 200)
        body = json.dumps({"model": "model"}).encode()
        code = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], sys.argv[2].encode()).status)"
        url = f"http://127.0.0.1:{server.http}/v1/chat/completions"
        client = subprocess.Popen([sys.executable, "-c", code, url, body.decode()], stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while True:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=5) as response:
                if b" 1.0" in response.read():
                    break
            assert time.monotonic() < deadline
        server.process.send_signal(signal.SIGTERM)
        server.wait("/ready", 503)
        said, _ = client.communicate(timeout=30)
        assert said == "200\n"
        assert server.process.wait(30) == 0


def test_the_server_does_not_outlive_a_killed_role(tmp_path: Path) -> None:
    with serving(tmp_path, {}) as server:
        server.wait("/ready", 200)
        server.process.kill()
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", server.http), 1).close()
            except OSError:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_server_that_ends_by_itself_ends_the_role(tmp_path: Path) -> None:
    with serving(tmp_path, {}, ends=3) as server:
        assert server.process.wait(30) == 3


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model": "/nowhere"}, "model: there is no folder /nowhere"),
        ({"model": ".", "adapters": {"a": "/nowhere"}}, "adapters.a: there is no folder /nowhere"),
        ({"model": "/"}, "model: / has no config.json"),
        ({"model": "a/b", "modell": 1}, "modell"),
    ],
)
def test_bad_configurations(tmp_path: Path, config: dict[str, object], said: str) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(config))
    command = [sys.executable, str(SERVE), "--config", str(file)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'images'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert done.stderr.startswith("config: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not PYTHON.exists(), reason="no vLLM here: `make serve-env`, and Debian's libnuma1")
def test_vllm_serves_a_model_and_an_adapter_under_its_own_name(tmp_path: Path) -> None:
    """The image's own smoke: ready, both names answer, and not the same; metrics, health check, SIGTERM to exit 0."""
    from training.tiny import TinyConfig, build

    build(TinyConfig(), tmp_path / "model")
    command = [sys.executable, str(Path(__file__).with_name("adapter.py")), str(tmp_path / "model")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run([*command, str(tmp_path / "adapter")], env=environment, check=True)
    path = f"{ROOT}:{ROOT / 'images'}:{SERVE.parent}"
    environment |= {"PYTHONPATH": path, "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    environment["SLIPWAY_READY_FILE"] = str(tmp_path / "ready")
    command = [str(PYTHON), "-m", "smoke", str(tmp_path / "model"), str(tmp_path / "adapter")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert "the adapter mine answers under its name, and otherwise" in done.stdout
    assert "SIGTERM while a request is answered" in done.stdout
    assert done.stdout.endswith("smoke: passed\n")
