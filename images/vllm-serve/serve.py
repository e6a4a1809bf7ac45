"""vLLM as a role of a run: `python -m serve --config $SLIPWAY_CONFIG`.

Starts vLLM's OpenAI server on $SLIPWAY_PORT_HTTP and answers on $SLIPWAY_PORT_METRICS: /ready (200 once a request has
really been answered, and as long as the server is well), /metrics (Prometheus; vLLM's own), /health (this process
lives). A role asks for it with

    ports: {http: 0, metrics: 0}
    ready: {http: /ready, port: metrics}

and the runtime then writes its address into the run. SIGTERM: not ready any more, requests that are being answered get
`drain` seconds, then the server ends; exit code 0. A server that ends by itself is an error with its exit code.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import role

from eval.config import Config, ConfigError

BUSY: Final = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? ([0-9.e+]+)", re.MULTILINE)
LORA_PATHS: Final = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
LINE: Final = (OSError, http.client.HTTPException)  # what a server that ends in the middle of an answer raises


class ServeConfig(Config, frozen=True, kw_only=True):
    """
    model        a folder, or OWNER/NAME of the hub
    name         what requests call it
    adapters     LoRA adapters to load at the start: name -> folder; requests name one in place of the model
    lora_rank    the largest rank of an adapter; with it, adapters can be loaded while it runs (/v1/load_lora_adapter).
                 None: 16 where there are adapters, else none can be loaded
    vision_lora  adapters may touch the vision tower; without this vLLM drops such weights silently
    context      tokens of prompt and answer; None: the model's
    requests     how many are computed at a time
    images       at most, in one request
    memory       share of the GPU's memory
    gpus         that share one copy of the model (tensor parallel)
    eager        no compiled graphs: up sooner, slower afterwards
    cache_gb     the key-value cache on a CPU
    drain        seconds that running requests get after SIGTERM
    start        seconds until the server must have answered
    arguments    further ones, as vLLM's own command line has them
    """

    model: str
    name: str = "model"
    adapters: dict[str, str] = msgspec.field(default_factory=dict)
    lora_rank: Annotated[int, msgspec.Meta(ge=1, le=512)] | None = None
    vision_lora: bool = True
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    context: Annotated[int, msgspec.Meta(ge=1)] | None = None
    requests: Annotated[int, msgspec.Meta(ge=1)] = 64
    images: Annotated[int, msgspec.Meta(ge=0)] = 8
    memory: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    gpus: Annotated[int, msgspec.Meta(ge=1)] = 1
    eager: bool = False
    cache_gb: Annotated[int, msgspec.Meta(ge=1)] = 1
    drain: Annotated[float, msgspec.Meta(ge=0)] = 20.0
    start: Annotated[float, msgspec.Meta(gt=0)] = 1800.0
    arguments: list[str] = msgspec.field(default_factory=list)

    def check(self) -> None:
        """Raises ConfigError."""
        paths = {"adapters." + name: path for name, path in self.adapters.items()}
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", self.model):
            paths["model"] = self.model
        for name, path in paths.items():
            if not Path(path).is_dir():
                raise ConfigError(f"{name}: there is no folder {path}")
        for name, path in paths.items():
            wanted = "config.json" if name == "model" else "adapter_config.json"
            if not (Path(path) / wanted).is_file():
                raise ConfigError(f"{name}: {path} has no {wanted}")

    def command(self, port: int) -> list[str]:
        """vLLM's command line. The `vllm` program itself does not know the CPU package; the module serves both."""
        given: dict[str, object] = {
            "host": "0.0.0.0",
            "port": port,
            "model": self.model,
            "served-model-name": self.name,
            "dtype": self.dtype,
            "max-num-seqs": self.requests,
            "limit-mm-per-prompt": json.dumps({"image": self.images}),
        }
        if self.context is not None:
            given["max-model-len"] = self.context
        if on_gpu():
            given |= {"gpu-memory-utilization": self.memory, "tensor-parallel-size": self.gpus}
        flags = ["--enforce-eager"] if self.eager else []
        if self.lora_rank is not None or self.adapters:
            flags += ["--enable-lora", "--max-lora-rank", str(lora_rank(self.lora_rank or 16))]
            flags += ["--max-loras", str(max(1, len(self.adapters)))]
            flags += ["--enable-tower-connector-lora"] if self.vision_lora else []
        if self.adapters:
            flags += ["--lora-modules", *(f"{name}={path}" for name, path in self.adapters.items())]
        pairs = [text for name, value in given.items() for text in (f"--{name}", str(value))]
        return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *pairs, *flags, *self.arguments]

    def environment(self) -> dict[str, str]:
        offline = {} if re.fullmatch(r"[\w.-]+/[\w.-]+", self.model) else {"HF_HUB_OFFLINE": "1"}
        return {**os.environ, **offline, LORA_PATHS: "1", "VLLM_CPU_KVCACHE_SPACE": str(self.cache_gb)}


def lora_rank(wanted: int) -> int:
    """vLLM takes some ranks only: the next larger one."""
    return next((rank for rank in (8, 16, 32, 64, 128, 256, 320, 512) if rank >= wanted), 512)


def on_gpu() -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return True
    return False


def end_with_parent() -> None:
    """In a new child: it gets SIGTERM when the parent is gone, killed without a word included (Linux only)."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Server:
    """vLLM as a child, and what is known of it."""

    def __init__(self, config: ServeConfig, port: int) -> None:
        self.config, self.url = config, f"http://127.0.0.1:{port}"
        # a session of its own: a signal to ours must not reach it before requests have ended; yet it ends with us
        self.process = subprocess.Popen(
            config.command(port), env=config.environment(), start_new_session=True, preexec_fn=end_with_parent
        )
        self.answered = False  # a whole request, with every served name
        self.stopping = threading.Event()

    def get(self, path: str, timeout: float = 5.0) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=timeout) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except LINE as error:
            return 503, str(error).encode()

    def ask(self, name: str) -> None:
        """One token, with its logprob (which compiles a kernel the first time). Raises one of LINE, ValueError for an
        answer that is none."""
        asked = {"model": name, "messages": [{"role": "user", "content": "ready?"}], "max_tokens": 1, "logprobs": True}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", json.dumps(asked).encode(), headers)
        with urllib.request.urlopen(request, timeout=300) as response:
            answer: Any = json.load(response)
        if not (isinstance(answer, dict) and answer.get("choices")):
            raise ValueError("the answer has no choices")

    def ready(self) -> bool:
        return self.answered and not self.stopping.is_set() and self.get("/health")[0] == 200

    def busy(self) -> float | None:
        """Requests that are computed or wait; None when the server does not say, as one with too much to do."""
        status, text = self.get("/metrics")
        return sum(map(float, BUSY.findall(text.decode(errors="replace")))) if status == 200 else None

    def warm_up(self) -> None:
        """Until every name has answered, or the child ended, or its time is over: then it is ended."""
        deadline = time.monotonic() + self.config.start
        while self.process.poll() is None and not self.stopping.is_set():
            if self.get("/health")[0] == 200:
                try:
                    for name in (self.config.name, *self.config.adapters):
                        self.ask(name)
                except (*LINE, ValueError) as error:
                    said = error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else ""
                    print(f"[serve] not yet an answer: {error} {said[:500]}", flush=True)
                else:
                    self.answered = True
                    print(f"[serve] ready: {self.config.name} on {self.url}", flush=True)
                    return
            if time.monotonic() > deadline:
                print(f"[serve] no answer within {self.config.start:.0f} s", flush=True)
                self.process.terminate()
                return
            self.stopping.wait(0.5)

    def drain(self) -> None:
        """Lets requests end, then ends the server. One that has just come is not counted at once: hence two looks."""
        end, quiet = time.monotonic() + self.config.drain, 0
        while self.answered and self.process.poll() is None and quiet < 2 and time.monotonic() < end:
            left = self.busy()
            quiet = quiet + 1 if left == 0 else 0
            if left != 0:
                print(f"[serve] draining: {'unknown' if left is None else f'{left:.0f} requests'}", flush=True)
            time.sleep(0.5)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def answer(server: Server, port: int) -> ThreadingHTTPServer:
    """The port beside the server's."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                status, body = server.get("/metrics")
            elif self.path == "/ready":
                status, body = (200, b"ready\n") if server.ready() else (503, b"not ready\n")
            else:
                status, body = (200, b"alive\n") if self.path == "/health" else (404, b"/ready /metrics /health\n")
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes every second are no news."""

    made = ThreadingHTTPServer(("0.0.0.0", port), Handler)
    threading.Thread(target=made.serve_forever, name="metrics", daemon=True).start()
    return made


def serve(config: ServeConfig) -> int:
    """Until SIGTERM or the server's end; the exit code."""
    config.check()
    http = int(os.environ.get("SLIPWAY_PORT_HTTP", "8000"))
    server = Server(config, http)
    beside = answer(server, int(os.environ.get("SLIPWAY_PORT_METRICS", "9000")))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stopping.set())
    threading.Thread(target=server.warm_up, name="warm-up", daemon=True).start()
    try:
        with role.ready_at(beside.server_address[1]):
            while server.process.poll() is None and not server.stopping.is_set():
                server.stopping.wait(0.2)
            if server.stopping.is_set():
                server.drain()
                print("[serve] ended", flush=True)
                return 0
        code = server.process.returncode
        print(f"[serve] the server ended by itself with {code}", flush=True)
        return code if code > 0 else 1
    finally:
        beside.shutdown()


if __name__ == "__main__":
    sys.exit(role.main("serve", "Serve a model with vLLM as a role of a run.", ServeConfig, serve))
