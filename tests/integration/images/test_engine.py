"""An engine that goes away in the middle of an answer: one error, whatever was being asked."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from launcher.errors import SlipwayError, Unreachable
from launcher.images.engine import Engine
from launcher.images.publish import PushFailed, export, push

# The SDK leaves the socket of a broken answer to the collector, whose warning must come here and not in another test.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

BEGUN = {"whole": b'{"stream": "Step 1/1 : RUN x"}\r\n', "half": b'{"stream": "Step 1/1'}


class Dying(BaseHTTPRequestHandler):
    """Knows its version; begins every other answer, and hangs up."""

    protocol_version = "HTTP/1.1"
    begun = BEGUN["whole"]
    announced = 0  # bytes that the broken chunk should have had beyond those that come

    def do_GET(self) -> None:
        if self.path == "/version":
            body = b'{"ApiVersion": "1.41"}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(201 if "/tag" in self.path else 200)
        if "/tag" in self.path:
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(f"{len(self.begun) + self.announced:x}\r\n".encode() + self.begun)
        self.wfile.write(b"" if self.announced else b"\r\n")
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=["whole", "half", "chunk"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The answer breaks off after an object, within one, or within a chunk of the transfer."""
    part = {"begun": BEGUN.get(request.param, BEGUN["whole"]), "announced": 9 if request.param == "chunk" else 0}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Dying,), part))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    made = Engine({"DOCKER_HOST": f"tcp://127.0.0.1:{server.server_address[1]}"})
    yield made
    made.api.close()
    server.shutdown()
    server.server_close()
    thread.join()
    gc.collect()


@pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:9"])
def test_no_engine_is_one_sentence(host: str) -> None:
    with pytest.raises(Unreachable) as raised:
        Engine({"DOCKER_HOST": host})
    assert str(raised.value).startswith("there is no Docker engine at ")
    assert "which DOCKER_HOST names" in str(raised.value)


def pull(engine: Engine) -> list[object]:
    engine.pull("a:1")
    return []


ASKED: dict[str, Callable[[Engine], Iterable[object]]] = {
    "build": lambda one: one.build(b"", dockerfile="Dockerfile", tag="a:1", arguments={}, network=None),
    "push": lambda one: one.push("127.0.0.1:9/a", "1"),
    "save": lambda one: one.save("a:1"),
    "logs": lambda one: one.logs("0123456789abcdef"),
    "pull": pull,
}


@pytest.mark.parametrize("asked", ASKED)
def test_an_answer_that_breaks_off_is_an_engine_that_is_away(engine: Engine, asked: str) -> None:
    with pytest.raises(Unreachable) as raised:
        list(ASKED[asked](engine))
    assert "the Docker engine cannot be reached" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_push_that_breaks_off_is_tried_again_and_then_an_error(engine: Engine) -> None:
    waited: list[float] = []
    with pytest.raises(PushFailed, match="tried 2 times"):
        push(engine, "a:1", "127.0.0.1:9/team", lambda _: None, waited.append, tries=2)
    assert waited == [1.0]


def test_an_export_that_breaks_off_says_whose_fault_it_is_and_leaves_nothing(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(SlipwayError, match="the Docker engine cannot be reached"):
        export(engine, "a:1", tmp_path / "out" / "a")
    assert list((tmp_path / "out").iterdir()) == []
