"""A receiver of webhooks and of Slack's Web API on this machine: it keeps what arrived, and answers as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl


@dataclass
class Arrived:
    path: str
    key: str
    body: Any  # of JSON and of a form what it says, else the bytes
    authorization: str | None = None


@dataclass
class Receiver:
    """`answer` gives the status of the n-th message, counted from 1; `says` the body of the answer at a path."""

    url: str = ""
    arrived: list[Arrived] = field(default_factory=list)
    answer: Callable[[int], int] = lambda number: 200
    says: Callable[[str], bytes] = lambda path: b""

    def texts(self) -> list[str]:
        return [one.body["text"] for one in self.arrived]

    def keys(self) -> list[str]:
        return [one.key for one in self.arrived]


def parsed(body: bytes, kind: str) -> Any:
    if kind.startswith("application/json"):
        return json.loads(body)
    return dict(parse_qsl(body.decode())) if kind == "application/x-www-form-urlencoded" else body


SECRET_PATH = "/services/T0/B0/x9-secret-part"


@contextmanager
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kind, told = self.headers["Content-Type"], self.headers["Authorization"]
            with lock:
                made.arrived.append(Arrived(self.path, self.headers["Idempotency-Key"], parsed(body, kind), told))
                status = made.answer(len(made.arrived))
            answer = made.says(self.path)
            self.send_response(status)
            if status in (301, 302, 307, 308):
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}{SECRET_PATH}"
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
