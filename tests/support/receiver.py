"""A receiver of webhooks on this machine, as Slack's: it keeps what arrived, and answers what a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Arrived:
    path: str
    key: str
    body: Any


@dataclass
class Receiver:
    """`answer` gives the status of the n-th message, counted from 1."""

    url: str = ""
    arrived: list[Arrived] = field(default_factory=list)
    answer: Callable[[int], int] = lambda number: 200

    def texts(self) -> list[str]:
        return [one.body["text"] for one in self.arrived]

    def keys(self) -> list[str]:
        return [one.key for one in self.arrived]


SECRET_PATH = "/services/T0/B0/x9-secret-part"


@contextmanager
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                made.arrived.append(Arrived(self.path, self.headers["Idempotency-Key"], json.loads(body)))
                status = made.answer(len(made.arrived))
            self.send_response(status)
            if status in (301, 302, 307, 308):
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

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
