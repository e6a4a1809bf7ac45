"""An HTTP proxy in front of an S3 server that does to requests what networks and servers do on bad days.

Faults are put in by hand for the next matching requests, or drawn at a rate from a seeded generator.
"""

from __future__ import annotations

import http.client
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any
from urllib.parse import unquote


class Kind(StrEnum):
    DROP_BEFORE = "drop_before"  # the connection breaks, the server never saw the request
    DROP_AFTER = "drop_after"  # the server did it, the answer is lost
    ERROR_500 = "error_500"  # refused by the server
    ERROR_500_AFTER = "error_500_after"  # done by the server, answered as if not
    SLOW_DOWN = "slow_down"  # 503, what S3 answers when asked too much
    TRUNCATE = "truncate"  # half of the answer's body, then the connection ends
    WRONG_BYTES = "wrong_bytes"  # bits flipped in the answer's body
    SLOW = "slow"  # the answer comes late


DRAWN = (Kind.DROP_BEFORE, Kind.DROP_AFTER, Kind.ERROR_500, Kind.ERROR_500_AFTER, Kind.SLOW_DOWN, Kind.TRUNCATE)


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # decoded, without its query
    query: str
    size: int  # bytes of the body


@dataclass
class Planned:
    kind: Kind
    matches: Callable[[Request], bool]
    times: int
    delay: float


@dataclass
class FaultProxy:
    """`with FaultProxy(upstream_port) as proxy:`; give `proxy.endpoint` to the client.

    seen   every request with what was done to it
    away   True: connections are refused at once with a reset, as from a machine that is gone
    """

    upstream: int
    seed: int = 0
    seen: list[tuple[Request, Kind | None]] = field(default_factory=list)
    away: bool = False
    port: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._rate = 0.0
        self._drawn: Sequence[Kind] = DRAWN
        self._planned: list[Planned] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._open: set[socket.socket] = set()
        self._closing = False
        self.port = self._listener.getsockname()[1]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plan(
        self, kind: Kind, *, method: str = "", key: str = "", times: int = 1, delay: float = 0.3, least: int = 0
    ) -> None:
        """Does `kind` to the next `times` requests with this method, `key` in their path and `least` bytes of body."""

        def matches(request: Request) -> bool:
            return request.method in (method or request.method) and key in request.path and request.size >= least

        with self._lock:
            self._planned.append(Planned(kind, matches, times, delay))

    @contextmanager
    def storm(self, rate: float, kinds: Sequence[Kind] = DRAWN) -> Iterator[None]:
        """Does one of `kinds` to each request with probability `rate`."""
        self._rate, self._drawn = rate, kinds
        try:
            yield
        finally:
            self._rate = 0.0

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.away = True
        for connection in list(self._open):
            _reset(connection)
        try:
            yield
        finally:
            self.away = False

    def faults(self, kind: Kind) -> int:
        return sum(done == kind for _, done in self.seen)

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._closing = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            _reset(connection)

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
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with suppress(OSError, http.client.HTTPException), connection.makefile("rb") as reader:
                while not self._closing and self._one(connection, reader):
                    pass
        finally:
            self._open.discard(connection)
            connection.close()

    def _one(self, connection: socket.socket, reader: object) -> bool:
        """Serves one request; False when the connection is to end."""
        line = reader.readline(65536)  # type: ignore[attr-defined]
        if not line or line[:1] == b"\x16":  # a client that tries TLS first: closed, it goes on without
            return False
        method, target, _ = line.decode().split(" ", 2)
        headers = http.client.parse_headers(reader)  # type: ignore[arg-type]
        if headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = _chunks(reader)
            del headers["Transfer-Encoding"]
            headers["Content-Length"] = str(len(body))
        else:
            body = reader.read(int(headers.get("Content-Length", 0)))  # type: ignore[attr-defined]
        path, _, query = target.partition("?")
        fault = self._choose(Request(method, unquote(path), query, len(body)))
        kind = fault.kind if fault else None
        if self.away or kind == Kind.DROP_BEFORE:
            _reset(connection)
            return False
        if kind == Kind.ERROR_500:
            return _refuse(connection, 500, "InternalError")
        if kind == Kind.SLOW_DOWN:
            return _refuse(connection, 503, "SlowDown")
        status, reason, answer_headers, answer = self._forward(method, target, headers, body)
        if self.away or kind == Kind.DROP_AFTER:
            _reset(connection)
            return False
        if kind == Kind.ERROR_500_AFTER:
            return _refuse(connection, 500, "InternalError")
        if kind == Kind.WRONG_BYTES:
            answer = bytes([answer[0] ^ 0xFF]) + answer[1:] if answer else answer
        if kind == Kind.SLOW and fault is not None:
            time.sleep(fault.delay)
        kept = [(n, v) for n, v in answer_headers if n.lower() not in ("connection", "transfer-encoding")]
        if not any(name.lower() == "content-length" for name, _ in kept):
            kept.append(("Content-Length", str(len(answer))))
        head = f"HTTP/1.1 {status} {reason}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in kept) + "\r\n"
        if kind == Kind.TRUNCATE:
            connection.sendall(head.encode("latin-1") + answer[: len(answer) // 2])
            _reset(connection)
            return False
        connection.sendall(head.encode("latin-1") + answer)
        return True

    def _choose(self, request: Request) -> Planned | None:
        with self._lock:
            fault = next((planned for planned in self._planned if planned.matches(request)), None)
            if fault is not None:
                fault.times -= 1
                self._planned = [planned for planned in self._planned if planned.times > 0]
            elif self._random.random() < self._rate:
                fault = Planned(self._random.choice(self._drawn), bool, 1, 0.05)
            self.seen.append((request, fault.kind if fault else None))
            return fault

    def _forward(
        self, method: str, target: str, headers: http.client.HTTPMessage, body: bytes
    ) -> tuple[int, str, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        try:
            # the Host header is signed: it stays the proxy's
            upstream.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            return answer.status, answer.reason, answer.getheaders(), answer.read()
        finally:
            upstream.close()


def _chunks(reader: Any) -> bytes:
    """A body that came in chunks, whole."""
    parts: list[bytes] = []
    while True:
        line = reader.readline(100)
        if not line:  # the client gave up in the middle
            raise http.client.IncompleteRead(b"".join(parts))
        if not (size := int(line.partition(b";")[0], 16)):
            break
        parts.append(reader.read(size))
        reader.readline(10)
    while reader.readline(1000).strip():  # trailers
        pass
    return b"".join(parts)


def _reset(connection: socket.socket) -> None:
    """Ends a connection at once; whoever reads it, here or there, gets an error."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _refuse(connection: socket.socket, status: int, code: str) -> bool:
    body = f"<Error><Code>{code}</Code><Message>by the fault proxy</Message></Error>".encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return True
