"""A Git repository over HTTP, which pods and controllers of a test's cluster can read: `git http-backend`."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


class GitRepository:
    """
    url     of the bare repository, as controllers read it
    folder  a work tree: what `commit` sends is all that is in it
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def git(self, *words: str) -> str:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
        command = ["git", *identity, *words]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, message: str) -> str:
        """Pushes the work tree; gives the commit."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        self.git("push", "-q", "origin", "HEAD:main")
        return self.git("rev-parse", "HEAD")


def _handler(root: Path) -> type[BaseHTTPRequestHandler]:
    class Git(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self._body())

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _answer(self, body: bytes) -> None:
            url = urlsplit(self.path)
            environment = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": url.path,
                "QUERY_STRING": url.query,
                "REQUEST_METHOD": self.command,
                "REMOTE_ADDR": self.client_address[0],
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            answer = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True).stdout
            head, _, data = answer.partition(b"\r\n\r\n")
            lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
            self.send_response(int(lines.pop("Status", "200").split()[0]))
            for name, value in {**lines, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            pass

    return Git


@contextmanager
def repository(host: str, place: Path) -> Iterator[GitRepository]:
    """An empty repository with the branch `main`, served at `host` (`cluster.host`) while the context lasts."""
    place.mkdir(parents=True, exist_ok=True)
    bare = place / "served" / "jobs.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(bare)], check=True)
    subprocess.run(["git", "-C", str(bare), "config", "http.receivepack", "true"], check=True)
    server = ThreadingHTTPServer((host, 0), _handler(bare.parent))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        subprocess.run(["git", "clone", "-q", str(bare), str(place / "work")], check=True, capture_output=True)
        yield GitRepository(f"http://{host}:{server.server_address[1]}/jobs.git", place / "work")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
