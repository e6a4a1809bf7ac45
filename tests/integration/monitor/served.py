"""`launcher monitor` as a process of its own, and requests to it as a browser or an attacker would send them."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.waiting import until


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Monitor:
    """A running monitor. Its state (database, token) lies in `home`, so one that starts there again goes on."""

    def __init__(
        self, home: Path, store: str, *words: str, port: int = 0, variables: Mapping[str, str] | None = None
    ) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self.out, self.err = home / "out", home / "err"
        self.out.write_bytes(b"")
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PATH", "SLIPWAY_ONE", "LANG"))}
        environ = {
            **kept,
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CACHE_HOME": str(home / "cache"),
            **(variables or {}),
        }
        argv = [sys.executable, "-m", "launcher.cli", "monitor", "--port", str(port), "--store", store]
        if "BROWSER" not in environ:
            argv.append("--no-browser")
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen([*argv, *words], cwd=home, stdout=out, stderr=err, env=environ)
        until(lambda: self.out.read_bytes().endswith(b"\n") or self.process.poll() is not None, self.err.read_text)
        assert self.process.poll() is None, self.err.read_text()
        self.address = self.out.read_text().strip()
        parts = urlsplit(self.address)
        assert parts.hostname == "127.0.0.1"
        assert parts.port is not None
        self.port, self.code = parts.port, parts.query.removeprefix("code=")
        given = words[words.index("--token-file") + 1] if "--token-file" in words else None
        self.token = Path(given or home / "state/slipway/monitor/token").read_text().strip()
        self.base = f"http://127.0.0.1:{self.port}"
        self.cookie = f"slipway-monitor-{self.port}={self.token}"

    def ask(
        self, path: str, method: str = "GET", *, known: bool = True, host: str | None = None, **headers: str
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            connection.putheader("Host", host if host is not None else f"127.0.0.1:{self.port}")
            if known:
                connection.putheader("Cookie", self.cookie)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def stop(self, sign: signal.Signals = signal.SIGINT) -> None:
        if self.process.poll() is None:
            self.process.send_signal(sign)
        self.process.wait(60)
