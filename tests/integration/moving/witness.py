"""A server that commands report each of their steps to, and that gives credentials as AWS's STS does: who computed
when, and what there was of the run at the backend that it had left when the next began."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final

from tests.support.s3 import KEY, SECRET

# every step is told to the witness before its checkpoint is made; it goes on until the witness says that it is enough
COMMAND: Final = """
import os, pathlib, time, urllib.request
E = os.environ
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
resume = E.get("SLIPWAY_RESUME")
step = int((pathlib.Path(resume) / "at").read_text()) if resume else 0
while True:
    step += 1
    said = opener.open(f"{E['WITNESS']}/{E['SLIPWAY_RUN']}/{E['SLIPWAY_ATTEMPT']}/{step}", timeout=120).read()
    if said == b"enough":
        break
    folder = pathlib.Path(E["SLIPWAY_OUTPUTS"]) / "ckpt" / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "at").write_text(str(step))
    time.sleep(0.2)
"""
_STS: Final = f"""<GetSessionTokenResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetSessionTokenResult>
<Credentials><AccessKeyId>{KEY}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken></SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></GetSessionTokenResult></GetSessionTokenResponse>"""


class Witness:
    """
    look   what there is of the run elsewhere: asked when an attempt reports its first step, which waits for the answer
    found  attempt -> that answer
    """

    def __init__(self, host: str) -> None:
        self.steps: list[tuple[float, int, int]] = []  # (when, attempt, step)
        self.enough: set[str] = set()
        self.found: dict[int, Any] = {}
        self.look: Callable[[str], Any] = lambda run: None
        self._lock = Lock()
        witness = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, run, attempt, step = self.path.split("/")
                self._send(witness.step(run, int(attempt), int(step)))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._send(_STS.encode())

            def _send(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer((host, 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://{host}:{self.server.server_address[1]}"

    @contextmanager
    def listening(self) -> Iterator[Witness]:
        thread = Thread(target=self.server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()

    def step(self, run: str, attempt: int, step: int) -> bytes:
        with self._lock:
            self.steps.append((time.monotonic(), attempt, step))
            if attempt not in self.found:
                self.found[attempt] = self.look(run)
        return b"enough" if run in self.enough else b"go on"

    def of(self, attempt: int) -> list[int]:
        return [step for _, number, step in self.steps if number == attempt]

    def one_at_a_time(self) -> bool:
        """Whether no attempt computed beside another: in the order of their steps each comes once."""
        order = [attempt for _, attempt, _ in self.steps]
        return sorted(order) == order
