"""A local HTTP server in the place of a model's API: it answers as a test says, with faults of the wire."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """body    a value that is sent as JSON, or text that is sent as it is
    events    sent as a stream of server-sent events, instead of `body`
    cut       closes the connection after this many bytes of the body
    hold      waits until the test is over before it answers
    """

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    events: Sequence[str] | None = None
    cut: int | None = None
    hold: bool = False


@dataclass
class ModelServer:
    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def serving(answer: Callable[[dict[str, Any], int], Reply], port: int = 0) -> Iterator[ModelServer]:
    """A server, on a free port by default; `answer` is given the request's JSON and its number, from 0."""
    over = threading.Event()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(server.requests)
                server.requests.append(request)
                server.headers.append({name.lower(): value for name, value in self.headers.items()})
                reply = answer(request, number)
            if reply.hold:
                over.wait()
                self.close_connection = True
                return
            self._send(reply)

        def _send(self, reply: Reply) -> None:
            if reply.events is not None:
                kind, text = "text/event-stream", "".join(f"data: {event}\n\n" for event in reply.events)
            else:
                kind = "application/json"
                text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            body = text.encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body if reply.cut is None else body[: reply.cut])
            if reply.cut is not None:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as listener:
        listener.daemon_threads = True
        server = ModelServer(f"http://127.0.0.1:{listener.server_address[1]}")
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            over.set()
            listener.shutdown()
            thread.join()


def completion(content: str | None, stop: str = "stop", **message: Any) -> dict[str, Any]:
    """A chat completion as OpenAI and vLLM send it."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": stop}
        ],
        "usage": {
            "prompt_tokens": 1000,
            "completion_tokens": 20,
            "total_tokens": 1020,
            "prompt_tokens_details": {"cached_tokens": 400},
        },
    }


def chunks(content: str, stop: str | None = "stop") -> list[str]:
    """The events of a streamed chat completion, three characters each; without `stop` it has no end."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events = []
    for start in range(0, len(content), 3):
        delta = {"role": "assistant", "content": content[start : start + 3]}
        events.append({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    if stop is None:
        return [json.dumps(event) for event in events]
    events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}]})
    usage = {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020}
    events.append({**head, "choices": [], "usage": usage})
    return [*(json.dumps(event) for event in events), "[DONE]"]
