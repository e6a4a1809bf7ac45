"""A stand-in for a hub over HTTP: what huggingface_hub asks to make a repository and a commit, with large files by LFS.

Paths, fields and statuses are those that huggingface_hub 2.4 sends and reads (hf_api, _commit_api, lfs) without Xet.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlparse


@dataclass
class Hub:
    """
    token    that it takes
    files    of the branch: path -> content; commits: their paths, in order
    blobs    large files that are there, by sha256
    asked    method and path of every request
    cuts     uploads of large files that are cut off in the middle
    down     503 to everything
    """

    url: str
    token: str = "hf_right"
    repos: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[list[str]] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    cuts: int = 0
    down: bool = False

    def reply(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            if name in self.repos:
                return 409, {"error": "You already created this model repo", "url": f"{self.url}/{name}"}
            self.repos[name] = asked
            return 200, {"url": f"{self.url}/{name}", "name": name}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if found := re.fullmatch(r"/api/models/(.+)/preupload/(.+)", path):
            return 200, {"files": [self.preupload(each) for each in json.loads(body)["files"]]}
        if path.endswith(".git/info/lfs/objects/batch"):
            return 200, {"objects": [self.action(each) for each in json.loads(body)["objects"]]}
        if path == "/verify":
            return 200, {}
        if found := re.fullmatch(r"/api/models/(.+)/commit/.+", path):
            return 200, self.commit(found[1], [json.loads(line) for line in body.splitlines()])
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/.+)?", path):
            return 200, {"_id": "1", "id": found[1], "sha": self.head, "siblings": [], "private": True, "tags": []}
        return 404, {"error": f"{method} {path}"}

    @property
    def head(self) -> str:
        return hashlib.sha1(f"{len(self.commits)}".encode()).hexdigest()

    def preupload(self, asked: dict[str, Any]) -> dict[str, Any]:
        large = asked["path"].endswith(".safetensors")
        there = self.files.get(asked["path"])
        oid = None
        if there is not None:
            blob = f"blob {len(there)}\0".encode() + there
            oid = hashlib.sha256(there).hexdigest() if large else hashlib.sha1(blob).hexdigest()
        mode = "lfs" if large else "regular"
        return {"path": asked["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}

    def action(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["oid"] in self.blobs:
            return dict(asked)
        upload = {"href": f"{self.url}/upload/{asked['oid']}"}
        return {**asked, "actions": {"upload": upload, "verify": {"href": f"{self.url}/verify"}}}

    def commit(self, repo: str, lines: list[dict[str, Any]]) -> dict[str, str]:
        changed = []
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.files[value["path"]] = self.blobs[value["oid"]]  # a commit of what never came is refused: KeyError
            else:
                continue
            changed.append(value["path"])
        self.commits.append(changed)
        url = f"{self.url}/{repo}/commit/{self.head}"
        return {"commitUrl": url, "commitOid": self.head}


@contextmanager
def hub() -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            path, size = urlparse(self.path).path, int(self.headers.get("Content-Length") or 0)
            server.asked.append(f"{self.command} {path}")
            if path.startswith("/upload/") and server.cuts:
                server.cuts -= 1
                self.rfile.read(size // 2)
                self.connection.close()
                return
            body = self.rfile.read(size)
            if server.down:
                self.answer(503, {"error": "down for maintenance"})
            elif path.startswith("/upload/"):
                oid = path.removeprefix("/upload/")
                assert hashlib.sha256(body).hexdigest() == oid
                server.blobs[oid] = body
                self.answer(200, {})
            elif self.headers.get("Authorization") != f"Bearer {server.token}":
                self.answer(401, {"error": f"Invalid token: {self.headers.get('Authorization')}"})
            else:
                self.answer(*server.reply(self.command, path, body))

        do_GET = do_POST = do_PUT = respond

        def answer(self, status: int, told: Any) -> None:
            data = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        server = Hub(f"http://127.0.0.1:{listener.server_address[1]}")
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()
