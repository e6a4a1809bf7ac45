"""An HTTP proxy in front of an S3 server that does to requests what networks and servers do on bad days.

Faults are put in by hand for the next matching requests, or drawn at a rate. What is drawn for a request depends on the
seed, on the request and on how often it came before, and not on which thread was quicker: the same seed gives the same
faults. Everything that the server executes is entered in a ledger (tests/support/ledger.py), late deliveries included.
"""

from __future__ import annotations

import http.client
import math
import random
import re
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.support.ledger import Ledger
from tests.support.listlag import is_listing, lagged
from tests.support.wrong_lists import wrong


class Kind(StrEnum):
    DROP_BEFORE = "drop_before"  # the connection breaks, the server never saw the request
    DROP_AFTER = "drop_after"  # the server did it, the answer is lost
    ERROR_500 = "error_500"  # refused by the server
    ERROR_500_AFTER = "error_500_after"  # done by the server, answered as if not
    SLOW_DOWN = "slow_down"  # 503 with Retry-After, what S3 answers when asked too much
    TRUNCATE = "truncate"  # half of the answer's body, then the connection ends
    WRONG_BYTES = "wrong_bytes"  # bits flipped in the answer's body
    SLOW = "slow"  # the answer comes late
    CUT_BODY = "cut_body"  # half of the request's body reaches the server, then the connection ends
    DOUBLE = "double"  # the server gets the request twice, the second time `delay` seconds after the first
    LATE = "late"  # the connection breaks, and the server gets the request `delay` seconds later, after the retry
    LAG = "lag"  # a listing as of `delay` seconds ago: what is new is missing, what was deleted is there


DRAWN = (Kind.DROP_BEFORE, Kind.DROP_AFTER, Kind.ERROR_500, Kind.ERROR_500_AFTER, Kind.SLOW_DOWN, Kind.TRUNCATE)
ALL = (*DRAWN, Kind.SLOW, Kind.CUT_BODY, Kind.DOUBLE, Kind.LATE, Kind.LAG)
_WRITES = ("PUT", "POST", "DELETE")
# seconds, drawn evenly, of the kinds that take some
DELAYS: Mapping[Kind, tuple[float, float]] = {
    Kind.SLOW_DOWN: (0.2, 1.0),
    Kind.SLOW: (0.02, 0.3),
    Kind.DOUBLE: (0.0, 3.0),
    Kind.LATE: (0.3, 6.0),
    Kind.LAG: (0.5, 2.0),
}


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # decoded, without its query
    query: str
    size: int  # bytes of the body

    @property
    def writes(self) -> bool:
        return self.method in _WRITES

    @property
    def alike(self) -> str:
        """What is the same of this request when a seeded trial is repeated: no bucket, no hash, no upload's name."""
        path = re.sub(r"[0-9a-f]{64}|(?<=-)[0-9a-f]{12}\b", "#", self.path.lstrip("/").partition("/")[2])
        asked = sorted(item for item in self.query.split("&") if item.startswith(("partNumber", "prefix", "list-type")))
        return f"{self.method} {path} {'&'.join(asked)}"

    def can(self, kind: Kind) -> bool:
        """Whether this fault means anything for this request."""
        if kind in (Kind.DOUBLE, Kind.LATE):
            return self.writes
        if kind is Kind.CUT_BODY:
            return self.size > 1
        return kind is not Kind.LAG or is_listing(self.method, self.query)


@dataclass
class Planned:
    kind: Kind
    matches: Callable[[Request], bool]
    times: int
    delay: float


@dataclass
class FaultProxy:
    """`with FaultProxy(upstream_port) as proxy:`; give `proxy.endpoint` to the client.

    seen     every request with what was done to it
    away     True: connections are refused at once with a reset, as from a machine that is gone
    refuses  (status, code) with which every request that writes is answered: a full store, a quota, no permission
    lists    (kind, part of a prefix): each listing of such a prefix is answered wrongly (tests/support/wrong_lists.py)
    ledger   every request that the server executed
    early    requests that came back before the seconds of their Retry-After had passed
    """

    upstream: int
    seed: int = 0
    seen: list[tuple[Request, Kind | None]] = field(default_factory=list)
    away: bool = False
    refuses: tuple[int, str] | None = None
    lists: tuple[str, str] | None = None
    port: int = 0
    early: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        began = time.monotonic()
        self.ledger = Ledger(lambda: time.monotonic() - began)
        self._times: Counter[str] = Counter()  # of requests that are alike
        self._rates: Mapping[Kind, float] = {}
        self._planned: list[Planned] = []
        self._lock = threading.Lock()
        self._of_key: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._owed = 0  # deliveries that are still to come
        self._asked_to_wait: dict[tuple[str, str], float] = {}  # method and path -> until when
        self._held: list[Callable[[], None]] = []  # those of them that wait for `settle`
        self._paid = threading.Condition()
        self._settled = threading.Event()
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
        """Does `kind` to the next `times` requests with this method, `key` in their path and `least` bytes of body. A
        slow answer or a second delivery whose `delay` is infinite comes when `settle` is called."""

        def matches(request: Request) -> bool:
            return request.method in (method or request.method) and key in request.path and request.size >= least

        with self._lock:
            self._planned.append(Planned(kind, matches, times, delay))

    @contextmanager
    def storm(self, rate: float | Mapping[Kind, float], kinds: Sequence[Kind] = DRAWN) -> Iterator[None]:
        """Does one of `kinds` to each request with probability `rate` in all, or each kind with a rate of its own."""
        self._rates = rate if isinstance(rate, Mapping) else {kind: rate / len(kinds) for kind in kinds}
        try:
            yield
        finally:
            self._rates = {}

    def settle(self, seconds: float = 60.0) -> None:
        """Waits until everything that is late has reached the server, what was held back until now included."""
        self._settled.set()
        while self._held:
            self._held.pop(0)()
        with self._paid:
            assert self._paid.wait_for(lambda: not self._owed, seconds), f"{self._owed} requests are still late"

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
        self._settled.set()
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
        request = Request(method, unquote(path), query, len(body))
        if self.refuses is not None and request.writes:
            return _refuse(connection, *self.refuses)
        fault = self._choose(request)
        kind = fault.kind if fault else None
        if self.away or kind == Kind.DROP_BEFORE:
            _reset(connection)
            return False
        if kind == Kind.ERROR_500:
            return _refuse(connection, 500, "InternalError")
        if self._asked_to_wait.get((method, request.path), 0.0) > time.monotonic():
            self.early.append(request)
        if kind == Kind.SLOW_DOWN and fault is not None:
            self._asked_to_wait[method, request.path] = time.monotonic() + math.ceil(fault.delay)
            return _refuse(connection, 503, "SlowDown", f"Retry-After: {math.ceil(fault.delay)}\r\n")
        if kind == Kind.CUT_BODY:
            self._cut(method, target, headers, body)
        if kind == Kind.LATE and fault is not None and request.writes:
            self._deliver(fault.delay, "late", method, target, headers, body)
        if kind in (Kind.LATE, Kind.CUT_BODY):
            _reset(connection)
            return False
        status, reason, answer_headers, answer = self._forward(method, target, headers, body)
        if kind == Kind.DOUBLE and fault is not None and request.writes:
            self._deliver(fault.delay, "double", method, target, headers, body)
        if kind == Kind.LAG and fault is not None and is_listing(method, query) and status == 200:
            answer = lagged(answer, target, self.ledger, fault.delay)
            answer_headers = [(n, v) for n, v in answer_headers if n.lower() != "content-length"]
        if self.lists is not None and is_listing(method, query) and status == 200:
            prefix = parse_qs(query).get("prefix", [""])[0]
            if self.lists[1] in f"/{prefix}":
                answer = wrong(self.lists[0], answer, target, self.ledger)
                answer_headers = [(n, v) for n, v in answer_headers if n.lower() != "content-length"]
        if self.away or kind == Kind.DROP_AFTER:
            _reset(connection)
            return False
        if kind == Kind.ERROR_500_AFTER:
            return _refuse(connection, 500, "InternalError")
        if kind == Kind.WRONG_BYTES:
            answer = bytes([answer[0] ^ 0xFF]) + answer[1:] if answer else answer
        if kind == Kind.SLOW and fault is not None:
            self._settled.wait(None if fault.delay == math.inf else fault.delay)
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
            else:
                fault = self._draw(request)
            self.seen.append((request, fault.kind if fault else None))
            return fault

    def _draw(self, request: Request) -> Planned | None:
        self._times[request.alike] += 1
        if not self._rates:
            return None
        dice = random.Random(f"{self.seed} {self._times[request.alike]} {request.alike}")
        at = dice.random()
        for kind, rate in self._rates.items():
            if at < rate:
                return (
                    Planned(kind, bool, 1, dice.uniform(*DELAYS.get(kind, (0.05, 0.05)))) if request.can(kind) else None
                )
            at -= rate
        return None

    def _deliver(
        self, delay: float, how: str, method: str, target: str, headers: http.client.HTTPMessage, body: bytes
    ) -> None:
        """Gives the server this request after `delay` seconds; nobody hears the answer."""

        def deliver() -> None:
            try:
                if not self._closing:
                    self._forward(method, target, headers, body, how)
            except (OSError, http.client.HTTPException):
                pass  # a server that is away executes nothing
            finally:
                with self._paid:
                    self._owed -= 1
                    self._paid.notify_all()

        with self._paid:
            self._owed += 1
        if delay == math.inf:
            self._held.append(deliver)
            return
        timer = threading.Timer(delay, deliver)
        timer.daemon = True
        timer.start()

    def _cut(self, method: str, target: str, headers: http.client.HTTPMessage, body: bytes) -> None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.upstream), 60) as upstream:
            head = f"{method} {target} HTTP/1.1\r\n" + "".join(
                f"{name}: {value}\r\n" for name, value in headers.items()
            )
            upstream.sendall(head.encode("latin-1") + b"\r\n" + body[: len(body) // 2])

    def _forward(
        self, method: str, target: str, headers: http.client.HTTPMessage, body: bytes, how: str = ""
    ) -> tuple[int, str, list[tuple[str, str]], bytes]:
        # Two puts of one key go one after another, so that the ledger has them in the server's order. Create-only ones
        # may race: one wins, in whatever order.
        alone = method == "PUT" and not headers.get("If-None-Match")
        with self._one_lock(target.partition("?")[0]) if alone else nullcontext():
            upstream = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
            try:
                # the Host header is signed: it stays the proxy's
                upstream.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
                for name, value in headers.items():
                    upstream.putheader(name, value)
                upstream.endheaders(body)
                answer = upstream.getresponse()
                read = answer.read()
                if method in _WRITES:
                    etag = answer.getheader("ETag") or ""
                    self.ledger.record(method, target, headers, body, answer.status, read, etag, how)
                return answer.status, answer.reason, answer.getheaders(), read
            finally:
                upstream.close()

    def _one_lock(self, path: str) -> threading.Lock:
        with self._lock:
            return self._of_key[path]


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


def _refuse(connection: socket.socket, status: int, code: str, more: str = "") -> bool:
    body = f"<Error><Code>{code}</Code><Message>by the fault proxy</Message></Error>".encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    connection.sendall(head.encode() + body)
    return True
