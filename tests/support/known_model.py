"""An OpenAI-compatible endpoint whose model knows the tasks of the environment `desktop`. Standard library alone.

It reads the instruction, and tells from the history in the prompt how far it is.
"""

from __future__ import annotations

import http.server
import json
import os
import re
from typing import Any


def text_of(messages: list[dict[str, Any]]) -> str:
    contents = [one["content"] if isinstance(one["content"], list) else [one] for one in messages]
    return "\n".join(part.get("text") or part.get("content") or "" for parts in contents for part in parts)


def answer(said: str) -> str:
    asked = re.search(r'exactly "(.*?)", and save', said)
    assert asked is not None, said
    line = json.dumps(f"{asked[1]}\n")
    actions = ('HOTKEY(keys=["ctrl", "end"])', f"TYPE(text={line})", 'HOTKEY(keys=["ctrl", "s"])', "DONE()")
    history = said.partition('exactly "')[2]
    return f"Action: {actions[sum(action in history for action in actions)]}"


class Model(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.reply({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert "image_url" in json.dumps(body["messages"]), "no screenshot"
        message = {"role": "assistant", "content": answer(text_of(body["messages"]))}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
        self.reply({**head, "choices": [choice], "usage": usage})

    def reply(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["SLIPWAY_PORT_HTTP"])), Model).serve_forever()
