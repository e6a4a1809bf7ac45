"""A proxy in front of the API server that does to a launcher's requests what networks and servers do on bad days.

TLS ends here (with the API server's own certificate, so clients need no exception) and begins anew behind it, as the
administrator. Watches and logs are streamed; exec and port-forward pass through. Faults are planned by hand for the
next requests that match, or drawn at a rate from a seeded generator.
"""

from __future__ import annotations

import http.client
import json
import random
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from tests.support.faultproxy import _chunks, _reset

if TYPE_CHECKING:
    from tests.support.cluster.cluster import Cluster


class Kind(StrEnum):
    DROP_BEFORE = "drop_before"  # the connection breaks, the server never saw the request
    DROP_AFTER = "drop_after"  # the server did it, the answer is lost
    ERROR_500 = "error_500"  # refused, not done
    ERROR_500_AFTER = "error_500_after"  # done, and answered as if not: what a slow etcd makes of a create
    TOO_MANY = "too_many"  # 429 with Retry-After: 1
    SLOW = "slow"  # the answer comes late
    GONE = "gone"  # a list or watch: 410
    GONE_EVENT = "gone_event"  # a watch: 200, and in the stream an ERROR event with code 410, the usual form
    CUT = "cut"  # a watch or log: the stream breaks after its first bytes


WATCH = frozenset({Kind.DROP_BEFORE, Kind.ERROR_500, Kind.TOO_MANY, Kind.SLOW, Kind.GONE, Kind.GONE_EVENT, Kind.CUT})
PLAIN = frozenset(set(Kind) - {Kind.GONE, Kind.GONE_EVENT, Kind.CUT})
DRAWN = tuple(Kind)
REASONS = {429: "TooManyRequests", 500: "InternalError", 410: "Expired"}


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # decoded, without its query
    query: str
    size: int  # bytes of the body

    @property
    def watch(self) -> bool:
        return parse_qs(self.query).get("watch", [""])[0] in ("true", "1")


@dataclass
class Planned:
    kind: Kind
    matches: Callable[[Request], bool]
    times: int
    delay: float


@dataclass
class ApiProxy:
    """`with cluster.proxy() as proxy:`; give `proxy.kubeconfig` to the launcher.

    seen  every request with what was done to it
    away  True: connections are reset at once, as if no API server were there
    """

    cluster: Cluster
    seed: int = 0
    seen: list[tuple[Request, Kind | None]] = field(default_factory=list)
    away: bool = False

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._rate = 0.0
        self._drawn: Sequence[Kind] = DRAWN
        self._delay = 0.2
        self._planned: list[Planned] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closing = False
        pki = self.cluster.control.pki
        self._inward = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._inward.load_cert_chain(pki.cert("apiserver"), pki.key("apiserver"))
        self._outward = ssl.create_default_context(cafile=str(pki.ca))
        self._outward.load_cert_chain(pki.cert("admin"), pki.key("admin"))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.server = f"https://127.0.0.1:{self.port}"
        self.kubeconfig: Path = pki.kubeconfig(f"proxy-{self.port}", user="admin", server=self.server)

    def plan(
        self,
        kind: Kind,
        *,
        method: str = "",
        path: str = "",
        watch: bool | None = None,
        times: int = 1,
        delay: float = 0.5,
    ) -> None:
        """Does `kind` to the next `times` requests with this method and `path` in their path; watches only or never."""

        def matches(request: Request) -> bool:
            fits = request.method in (method or request.method) and path in request.path
            return fits and watch in (None, request.watch) and kind in _possible(request)

        with self._lock:
            self._planned.append(Planned(kind, matches, times, delay))

    @contextmanager
    def storm(self, rate: float, kinds: Sequence[Kind] = DRAWN, delay: float = 0.2) -> Iterator[None]:
        """Does one of `kinds` to each request with probability `rate`."""
        self._rate, self._drawn, self._delay = rate, kinds, delay
        try:
            yield
        finally:
            self._rate = 0.0

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.away = True
        self.cut()
        try:
            yield
        finally:
            self.away = False

    def cut(self) -> None:
        """Breaks every connection that is open, streams included."""
        for connection in list(self._open):
            _reset(connection)

    def faults(self, kind: Kind | None = None) -> int:
        """How many requests had this done to them; without a kind, how many had anything."""
        with self._lock:
            return sum(done is not None and kind in (None, done) for _, done in self.seen)

    def __enter__(self) -> ApiProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self.away:
                _reset(connection)
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        """One connection of a client, and one to the server for as long as it lasts."""
        try:
            plain.settimeout(30)
            connection = self._inward.wrap_socket(plain, server_side=True)
            connection.settimeout(None)
        except OSError:
            plain.close()
            return
        self._open.add(connection)
        upstream = http.client.HTTPSConnection(
            self.cluster.box.address, int(self.cluster.server.rpartition(":")[2]), context=self._outward
        )
        try:
            with suppress(OSError, ValueError, http.client.HTTPException), connection.makefile("rb") as reader:
                while not self._closing and self._one(connection, reader, upstream):
                    pass
        finally:
            self._open.discard(connection)
            upstream.close()
            connection.close()

    def _one(self, connection: ssl.SSLSocket, reader: Any, upstream: http.client.HTTPSConnection) -> bool:
        """Serves one request; False when the connection is to end."""
        line = reader.readline(65536)
        if not line:
            return False
        method, target, _ = line.decode().split(" ", 2)
        headers = http.client.parse_headers(reader)
        if headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = _chunks(reader)
            del headers["Transfer-Encoding"]
            headers["Content-Length"] = str(len(body))
        else:
            body = reader.read(int(headers.get("Content-Length", 0)))
        path, _, query = target.partition("?")
        request = Request(method, unquote(path), query, len(body))
        fault = self._choose(request)
        kind = fault.kind if fault else None
        if self.away or kind == Kind.DROP_BEFORE:
            return _drop(connection)
        if kind == Kind.SLOW and fault is not None:
            time.sleep(fault.delay)
        if kind == Kind.ERROR_500:
            return _refuse(connection, 500)
        if kind == Kind.TOO_MANY:
            return _refuse(connection, 429)
        if kind == Kind.GONE:
            return _refuse(connection, 410)
        if kind == Kind.GONE_EVENT:
            event = json.dumps({"type": "ERROR", "object": _status(410)}).encode() + b"\n"
            connection.sendall(_head(200, "OK", [("Content-Type", "application/json")], len(event)) + event)
            return True
        if "upgrade" in headers.get("Connection", "").lower():
            return self._tunnel(connection, line, headers)
        upstream.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            upstream.putheader(name, value)
        upstream.endheaders(body)
        answer = upstream.getresponse()
        known = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOP]
        if answer.getheader("Content-Length") is None and answer.status not in (204, 304) and method != "HEAD":
            return self._stream(connection, answer, known, kind)
        data = answer.read()
        if self.away or kind == Kind.DROP_AFTER:
            return _drop(connection)
        if kind == Kind.ERROR_500_AFTER:
            return _refuse(connection, 500)
        connection.sendall(_head(answer.status, answer.reason, known, len(data)) + data)
        return True

    def _stream(
        self,
        connection: ssl.SSLSocket,
        answer: http.client.HTTPResponse,
        headers: list[tuple[str, str]],
        kind: Kind | None,
    ) -> bool:
        """An answer without a length: piece by piece, as it comes."""
        if kind == Kind.DROP_AFTER or kind == Kind.ERROR_500_AFTER:
            answer.read()
            return _refuse(connection, 500) if kind == Kind.ERROR_500_AFTER else _drop(connection)
        connection.sendall(_head(answer.status, answer.reason, headers, None))
        while piece := answer.read1(65536):
            if kind == Kind.CUT:
                piece = piece[: max(1, len(piece) // 2)]
            connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            if kind == Kind.CUT:
                return _drop(connection)
        connection.sendall(b"0\r\n\r\n")
        return True

    def _tunnel(self, connection: ssl.SSLSocket, line: bytes, headers: http.client.HTTPMessage) -> bool:
        """exec and port-forward: the bytes of both sides, until one ends."""
        host, port = self.cluster.server.removeprefix("https://").split(":")
        with self._outward.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host) as upstream:
            text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            upstream.sendall(line + text.encode() + b"\r\n")
            sides = {connection: upstream, upstream: connection}
            while True:
                ready = [side for side in sides if side.pending()] or select.select(list(sides), [], [], 60)[0]
                for side in ready:
                    data = side.recv(65536)
                    if not data:
                        return False
                    sides[side].sendall(data)

    def _choose(self, request: Request) -> Planned | None:
        with self._lock:
            fault = next((planned for planned in self._planned if planned.matches(request)), None)
            if fault is not None:
                fault.times -= 1
                self._planned = [planned for planned in self._planned if planned.times > 0]
            elif self._random.random() < self._rate:
                possible = [kind for kind in self._drawn if kind in _possible(request)]
                fault = Planned(self._random.choice(possible), bool, 1, self._delay) if possible else None
            self.seen.append((request, fault.kind if fault else None))
            return fault


HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


def _possible(request: Request) -> frozenset[Kind]:
    if request.watch:
        return WATCH
    if request.path.endswith("/log"):
        return PLAIN | {Kind.CUT}
    return PLAIN | {Kind.GONE} if request.method == "GET" and "continue=" in request.query else PLAIN


def _status(code: int) -> dict[str, object]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "by the fault proxy",
        "reason": REASONS[code],
        "code": code,
        **({"details": {"retryAfterSeconds": 1}} if code == 429 else {}),
    }


def _head(status: int, reason: str, headers: list[tuple[str, str]], length: int | None) -> bytes:
    size = ("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))
    text = "".join(f"{name}: {value}\r\n" for name, value in [*headers, size])
    return f"HTTP/1.1 {status} {reason}\r\n{text}\r\n".encode("latin-1")


def _refuse(connection: ssl.SSLSocket, code: int) -> bool:
    body = json.dumps(_status(code)).encode()
    headers = [("Content-Type", "application/json"), *([("Retry-After", "1")] if code == 429 else [])]
    connection.sendall(_head(code, REASONS[code], headers, len(body)) + body)
    return True


def _drop(connection: ssl.SSLSocket) -> bool:
    _reset(connection)
    return False
