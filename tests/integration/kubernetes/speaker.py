"""A server that speaks HTTP as an API server does, and says what a test tells it to."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

# status, and the body: bytes as they are, a text as a page, an iterator of bytes piece by piece, anything else as JSON
Answer = tuple[int, Any]


class Speaker(ThreadingHTTPServer):
    """`answer`: (method, path, query) -> what is said; `asked`: what was asked, in order; `logins`: the header
    Authorization of each, or the subject of the client's certificate; `admits`: whether a login is accepted; `ahead`:
    seconds by which its clock is ahead of this machine's."""

    daemon_threads = True
    ahead = 0.0
    request_queue_size = 64

    def __init__(
        self, answer: Callable[[str, str, dict[str, str]], Answer], tls: ssl.SSLContext | None = None, ca: str = ""
    ) -> None:
        self.answer, self.ca = answer, ca
        self.asked: list[tuple[str, str]] = []
        self.logins: list[str] = []
        self.forms: list[str] = []
        self.admits: Callable[[str], bool] = lambda login: True
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: Any) -> None:
        """A client that went away, or that refused this server."""

    def kubeconfig(
        self, folder: Path, namespace: str = "n", user: dict[str, Any] | None = None, **cluster: Any
    ) -> Path:
        trust = {"certificate-authority": self.ca} if self.ca else {}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url, **trust, **cluster}}],
            "users": [{"name": "u", "user": user or {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
            "current-context": "x",
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return path


class _Handler(BaseHTTPRequestHandler):
    server: Speaker

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.server.forms.append(self.rfile.read(int(self.headers.get("content-length") or 0)).decode())
        self.server.asked.append((self.command, url.path))
        login = self.headers.get("authorization") or self._subject()
        self.server.logins.append(login)
        admitted = self.server.admits(login)
        status, body = self.server.answer(self.command, url.path, query) if admitted else refusal(401, "Unauthorized")
        self.send_response(status)
        self.send_header("content-type", "text/html" if isinstance(body, str) else "application/json")
        self.end_headers()
        if isinstance(body, Iterator):
            with suppress(OSError):
                for piece in body:
                    self.wfile.write(piece)
                    self.wfile.flush()
            return
        whole = json.dumps(body) if not isinstance(body, bytes | str) else body
        self.wfile.write(whole.encode() if isinstance(whole, str) else whole)

    do_POST = do_DELETE = do_PATCH = do_GET

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((time.time() if timestamp is None else timestamp) + self.server.ahead)

    def _subject(self) -> str:
        certificate = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
        return str(dict(part[0] for part in certificate["subject"])["commonName"]) if certificate else ""

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def speaking(
    answer: Callable[[str, str, dict[str, str]], Answer], tls: ssl.SSLContext | None = None, ca: str = ""
) -> Iterator[Speaker]:
    made = Speaker(answer, tls, ca)
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()


def refusal(code: int, reason: str, message: str = "no") -> Answer:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}
