"""Feeds against a server that speaks like an API server and behaves worse than one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from launcher.backends.kubernetes.api import Api, login
from launcher.backends.kubernetes.objects import JOB
from launcher.backends.kubernetes.watch import Board, Feed

Answer = Callable[[dict[str, str]], tuple[int, bytes]]


class Server(ThreadingHTTPServer):
    """Answers `list` and `watch` as it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        self.lists: Answer = lambda query: (200, listed("1"))
        self.watches: Answer = lambda query: (200, b"")
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        what = "watch" if "watch" in query else "list"
        self.server.asked.append(what)
        status, body = (self.server.watches if what == "watch" else self.server.lists)(query)
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def one(name: str) -> dict[str, Any]:
    notes = {"slipway.dev/runs": json.dumps({name: "h"})}
    return {"metadata": {"name": name, "namespace": "n", "annotations": notes}}


def listed(version: str, *names: str, rest: str = "") -> bytes:
    metadata = {"resourceVersion": version, "continue": rest}
    return json.dumps({"metadata": metadata, "items": [one(name) for name in names]}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def board(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    """Of Jobs alone."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    api = Api(login())
    made = Board(api, "n", "x")
    made.feeds = [Feed(made, JOB)]
    yield made
    made.stop()
    for feed in made.feeds:
        feed.join(10)
    api.close()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("status", [200, 410])
def test_a_watch_that_ends_at_once_is_not_taken_up_in_a_storm(server: Server, board: Board, status: int) -> None:
    server.watches = lambda query: (status, b"")
    board.start()
    until(lambda: server.asked.count("watch") >= 3)
    before = len(server.asked)
    time.sleep(2.0)
    assert len(server.asked) - before < 20  # hundreds without a pause


def test_a_list_that_begins_anew_forgets_what_its_first_pages_had(server: Server, board: Board) -> None:
    """The continuation expires; what went meanwhile is in no watch that begins later."""
    expired = json.dumps({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}).encode()
    answers = iter([(200, listed("1", "gone", "stays", rest="more")), (410, expired), (200, listed("5", "stays"))])
    server.lists = lambda query: next(answers)
    server.watches = lambda query: (200, b"")
    board.start()
    assert board.look_up("stays") is not None
    assert board.look_up("gone") is None
