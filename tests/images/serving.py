"""vllm-serve's own program in the tests, with a stand-in for vLLM that answers for it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.support.engine import ROOT
from tests.support.waiting import until

SERVE = ROOT / "images" / "vllm-serve" / "serve.py"
# Says it is healthy at once. Files in the model's folder say how it goes on: with `loading` it answers nothing, with
# `garbled` no JSON, with `slow` no more than one token, with `mute` it tells no figures. It writes its command line and
# its environment beside the model. With the setting `key` it answers as vLLM's AuthenticationMiddleware does (0.32.0,
# entrypoints/serve/middleware/authenticate.py): 401 below /v1 without that key, /health and /metrics for everybody.
STAND_IN = """
import argparse, json, os, pathlib, signal, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
given, rest = parser.parse_known_args()
folder = pathlib.Path(rest[rest.index("--model") + 1])
settings = json.loads((folder / "settings.json").read_text())
(folder.parent / "started.json").write_text(json.dumps({"argv": sys.argv[1:], "environ": dict(os.environ)}))
if settings.get("stubborn"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if settings.get("ends"):
    sys.exit(settings["ends"])
running = 0
def says(word):
    return (folder / word).exists()
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        metrics = f'vllm:num_requests_running{{model_name="m"}} {running}.0\\n'
        if self.path == "/metrics" and says("mute"):
            return self.reply(500, "too much to do")
        self.reply(200, metrics if self.path == "/metrics" else "ok")
    def do_POST(self):
        global running
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if settings.get("key") and self.headers.get("Authorization") != "Bearer " + settings["key"]:
            return self.reply(401, "Unauthorized")
        if says("loading"):
            return self.reply(500, "loading")
        while says("hanging"):
            time.sleep(0.02)
        if says("garbled"):
            return self.reply(200, "hm")
        if body["model"] not in settings["names"]:
            return self.reply(404, "no such model")
        running += 1
        while body.get("max_tokens") != 1 and says("slow"):
            time.sleep(0.02)
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
    def __init__(self, folder: Path, process: subprocess.Popen[str], http: int) -> None:
        self.folder, self.process, self.http = folder, process, http

    def get(self, path: str) -> tuple[int, str]:
        """What the port beside the server's says; (0, "") as long as there is none."""
        try:
            ready = (self.folder / "ready").read_text()  # where a health check would look
            with urllib.request.urlopen(ready.removesuffix("/ready") + path, timeout=5) as response:
                return int(response.status), response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""
        except OSError:
            return 0, ""

    def wait(self, path: str, status: int, text: str = "") -> None:
        def says() -> bool:
            assert self.process.poll() is None, "the role has ended"
            said = self.get(path)
            return said[0] == status and text in said[1]

        until(says)

    def reads(self, text: str) -> None:
        """Waits for a line of the log."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if text in line:
                return
        raise AssertionError("".join(lines))

    def started(self) -> tuple[list[str], dict[str, str]]:
        """(command line, environment) of the stand-in."""
        self.wait("/ready", 200)
        seen = json.loads((self.folder / "started.json").read_text())
        return seen["argv"], seen["environ"]

    def says(self, word: str) -> None:
        (self.folder / "model" / word).touch()

    def says_no_more(self, word: str) -> None:
        (self.folder / "model" / word).unlink()

    def ask(self) -> subprocess.Popen[str]:
        """A client with a long request, which is being answered."""
        code = 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], b\'{"model": "model"}\').status)'
        command = [sys.executable, "-c", code, f"http://127.0.0.1:{self.http}/v1/chat/completions"]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.wait("/metrics", 200, " 1.0")
        return client


@contextmanager
def reserved() -> Iterator[int]:
    """A port that is given to nobody who asks for any; a server that reuses addresses, as the stand-in, can listen."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


@contextmanager
def serving(
    folder: Path,
    config: dict[str, object],
    *words: str,
    environ: Mapping[str, str] = MappingProxyType({}),
    options: Sequence[str] = (),
    **settings: object,
) -> Iterator[Serving]:
    """`words`: what the stand-in does from the beginning. `options`: it is started as by `docker run IMAGE --model X`,
    with these further ones, without a configuration file."""
    with reserved() as http:
        yield from _serving(folder, config, words, settings, http, environ, options)


def _serving(
    folder: Path,
    config: dict[str, object],
    words: tuple[str, ...],
    settings: dict[str, object],
    http: int,
    environ: Mapping[str, str],
    options: Sequence[str],
) -> Iterator[Serving]:
    model = folder / "model"
    package = folder / "python" / "vllm" / "entrypoints" / "openai"
    for one in (model, package):
        one.mkdir(parents=True)
    (package / "api_server.py").write_text(STAND_IN)
    (model / "config.json").write_text("{}")
    (model / "settings.json").write_text(json.dumps({"names": ["model"], **settings}))
    for word in words:
        (model / word).touch()
    file = folder / "serve.json"
    file.write_text(json.dumps({"model": str(model), **config}))
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'images'}:{SERVE.parent}:{folder / 'python'}",
        "SLIPWAY_READY_FILE": str(folder / "ready"),
        "SLIPWAY_PORT_HTTP": str(http),
        "SLIPWAY_PORT_METRICS": "0",
        **environ,
    }
    command = [sys.executable, str(SERVE), "--config", str(file)]
    if options:
        command = [sys.executable, "-m", "entry", "--model", str(model), *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield Serving(folder, process, http)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def adapter(folder: Path, rank: int) -> str:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank}))
    return str(folder)


def value(argv: list[str], option: str) -> str:
    """What the last `option` of a command line says: vLLM's parser takes the last one."""
    return argv[len(argv) - 1 - argv[::-1].index(option) + 1]


def entry(*words: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'images'}:{SERVE.parent}", **(environ or {})}
    command = [sys.executable, "-m", "entry", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
