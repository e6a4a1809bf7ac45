"""A server that speaks HTTP as an API server does, and says what a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, Any]  # status, and the body: bytes as they are, a text as a page, anything else as JSON


class Speaker(ThreadingHTTPServer):
    """`answer`: (method, path, query) -> what is said; `asked`: what was asked, in order."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str, str, dict[str, str]], Answer]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def kubeconfig(self, folder: Path, namespace: str = "n") -> Path:
        config = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server_port}"}}],
            "users": [{"name": "u", "user": {}}],
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
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.asked.append((self.command, url.path))
        status, body = self.server.answer(self.command, url.path, query)
        self.send_response(status)
        self.send_header("content-type", "text/html" if isinstance(body, str) else "application/json")
        self.end_headers()
        whole = json.dumps(body) if not isinstance(body, bytes | str) else body
        self.wfile.write(whole.encode() if isinstance(whole, str) else whole)

    do_POST = do_DELETE = do_PATCH = do_GET

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def speaking(answer: Callable[[str, str, dict[str, str]], Answer]) -> Iterator[Speaker]:
    made = Speaker(answer)
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()


def refusal(code: int, reason: str, message: str = "no") -> Answer:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}
