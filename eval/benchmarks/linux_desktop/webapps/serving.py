"""Runs one web application: eval.desktops.sites starts it, tells it what to serve, and asks for its state."""

from __future__ import annotations

import encodings.idna  # noqa: F401 Python loads it late, when it may no longer be read
import json
import os
import resource
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from socket import socket
from socketserver import TCPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from eval.benchmarks.linux_desktop.webapps.app import SentForm, WebApp, WebReply, missing
from eval.desktops.keeping import kernel

MODULE: Final = "eval.benchmarks.linux_desktop.webapps.serving"
PORT: Final = 8080  # in the desktop's own network it is always free
NOBODY: Final = 65534
BODY: Final = 64 << 10  # bytes of a form
FIELDS: Final = 200
AT_ONCE: Final = 32  # connections
IDLE_S: Final = 10.0
MEMORY: Final = 4 << 30
POSTS: Final = 2000  # forms that are taken of one desktop: more is a flood
# name -> module and class
APPS: Final = {
    "board": "IssueBoard",
    "mail": "Mail",
    "pages": "Pages",
    "records": "Records",
    "report": "DamageForm",
    "rooms": "Rooms",
    "settings": "AccountPages",
    "shop": "Shop",
    "wizard": "Wizard",
}


def made(name: str, data: Any) -> WebApp:
    """The application of a name."""
    kind = getattr(import_module(f"eval.benchmarks.linux_desktop.webapps.{name}"), APPS[name])
    app: WebApp = kind(data)
    return app


def answer(app: WebApp, method: str, target: str, body: bytes = b"") -> WebReply:
    """What the application answers to a request. A request that it does not understand changes nothing."""
    where = urlsplit(target)
    try:
        if method == "GET":
            return app.get(where.path, _form(where.query)) or missing()
        return app.post(where.path, _form(body.decode())) or missing()
    except (KeyError, LookupError, ValueError):
        return missing()


def _form(text: str) -> SentForm:
    return SentForm(parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS))


class _Server(ThreadingHTTPServer):
    """So many connections at once and no more: a flood is refused, not kept."""

    daemon_threads = True
    request_queue_size = 128  # those that wait; with Python's 5 a busy machine lets connections time out

    def __init__(self, port: int, app: WebApp) -> None:
        self.app = app
        self.lock = threading.Lock()
        self.posts = 0
        self.room = threading.BoundedSemaphore(AT_ONCE)
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        """Without the look for a name of this machine that the class above has."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.room.acquire(timeout=IDLE_S):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """A connection that ended early is no matter."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = IDLE_S

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and int(length) <= BODY):
            self.send_error(413)
            return
        self.server.posts += 1
        if self.server.posts > POSTS:
            self.send_error(429)
            return
        self._answer(self.rfile.read(int(length)))

    def _answer(self, body: bytes) -> None:
        with self.server.lock:
            reply = answer(self.server.app, self.command, self.path, body)
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Cache-Control", "no-store")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the name that it has there
        pass


def main() -> int:
    """Serves until standard input ends. It reads JSON lines: what to serve, then any line asks for the state."""
    order = json.loads(sys.stdin.readline())
    try:
        app = made(order["app"], order["data"])
        descriptors = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in order["join"]]
        for descriptor in descriptors:
            kernel.join(descriptor)
        try:
            server = _Server(PORT if order["join"] else 0, app)
        except OSError:
            server = _Server(0, app)
        if order["drop"]:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        kernel.no_new_privileges()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except OSError as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        return 1
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    for _ in sys.stdin:
        with server.lock:
            state = app.state()
        print(json.dumps(state), flush=True)
    return 0
