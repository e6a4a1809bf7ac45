"""JSON over HTTP, as little as a desktop and a model need."""

from __future__ import annotations

import http.server
import json
import urllib.request
from collections.abc import Callable
from typing import Any

Answer = Callable[[str, Any], Any]


def serve(port: int, answer: Answer) -> None:
    """POST /WHAT calls `answer("WHAT", body)`; GET says that it is there. Never returns."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(answer(self.path.strip("/"), body))

        def reply(self, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("0.0.0.0", port), Handler)
    print("serving", flush=True)
    server.serve_forever()


def ask(address: str, what: str, body: Any) -> Any:
    """Raises OSError at once where nobody answers: whoever asks was told that somebody is there."""
    request = urllib.request.Request(f"http://{address}/{what}", json.dumps(body).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return json.loads(answer.read())
