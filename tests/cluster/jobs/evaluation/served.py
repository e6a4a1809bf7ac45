"""JSON over HTTP, as little as a desktop and a model need."""

from __future__ import annotations

import http.server
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from eval.desktop import ActionRefused

Answer = Callable[[str, Any], Any]


def serve(port: int, answer: Answer) -> None:
    """POST /WHAT calls `answer("WHAT", body)`; GET says that it is there. Never returns.

    An ActionRefused is answered with 409 and its message: it is the agent's error, not the server's.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                self.reply(answer(self.path.strip("/"), body))
            except ActionRefused as refused:
                self.reply({"refused": str(refused)}, 409)

        def reply(self, value: Any, status: int = 200) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("0.0.0.0", port), Handler)
    print("serving", flush=True)
    server.serve_forever()


def ask(address: str, what: str, body: Any) -> Any:
    """Raises OSError at once where nobody answers: whoever asks was told that somebody is there. Raises ActionRefused
    where the desktop refused an action."""
    request = urllib.request.Request(f"http://{address}/{what}", json.dumps(body).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise
        raise ActionRefused(json.loads(error.read())["refused"]) from None
