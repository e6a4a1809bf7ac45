"""Requests to a cluster's API server. The official client sets TLS up; requests are built here.

Its own calls build models of every field, which is slow, so requests here send raw bytes over its connection pool
(figures: docs/project/benchmarks.md). Every request can be repeated: a second create answers 409, a second delete
404. Logins are renewed while it works (`access`): one that the server refuses is obtained anew once.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from launcher.backends.kubernetes.access.credentials import ClientCertificate, NoCredentials
from launcher.backends.kubernetes.access.login import Login
from launcher.backends.kubernetes.access.waking import Streams, asleep
from launcher.decoding import decode
from launcher.errors import SlipwayError, Unreachable

CONNECT: Final = 5.0  # seconds
READ: Final = 30.0
FIRST: Final = 6.0  # seconds of trying while the cluster has never answered: most likely it does not exist
PATIENCE: Final = 60.0  # seconds of trying one request once the cluster has answered
LONGEST_PAUSE: Final = 30.0  # seconds; a longer Retry-After is cut to this
AGAIN: Final = frozenset({429, 500, 502, 503, 504})
ONLY_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
ONLY_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class ApiRefused(SlipwayError):
    """The API server refused the request, and would refuse it again."""

    def __init__(self, status: int, reason: str, message: str, request: str) -> None:
        self.status, self.reason, self.message = status, reason, message
        super().__init__(f"{request}: {message}" if message else f"{request}: {status} {reason}")


@dataclass(frozen=True)
class ApiAnswer:
    status: int
    body: bytes
    warnings: tuple[str, ...] = ()

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class _Status(msgspec.Struct):
    """The fields of metav1.Status that are read here."""

    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


@dataclass
class Api:
    """A cluster. Thread-safe; connections are kept open and shared."""

    login: Login
    _pool: Any = field(init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _certificate: ClientCertificate | None = None  # which the pool's connections use, where the login renews it
    _answered: bool = False
    known: dict[str, tuple[float, bool]] = field(default_factory=dict)  # API group -> when asked, whether served
    # (namespace, kind) -> when listed, the objects that carry several runs
    shared: dict[tuple[str, str], tuple[float, list[Any]]] = field(default_factory=dict)
    _dated: str = ""  # when it last answered, by its own clock
    _ahead: float = 0.0  # seconds by which its clock is ahead of this machine's
    _not_before: float = 0.0  # backpressure: a 429 to one request delays all of them

    def __post_init__(self) -> None:
        self._pool = _pool_of(self.login)
        self._streams = Streams(lambda: self._pool.clear())  # idle connections are lost with the streams

    @property
    def host(self) -> str:
        return str(self.login.configuration.host)

    @property
    def where(self) -> str:
        """The cluster's name in messages."""
        return f"{self.login.context} ({self.host})" if self.login.context else self.host

    def now(self) -> float:
        """The time by the cluster's clock, to about a second, in seconds since the epoch. This machine's own until the
        cluster has answered."""
        return time.time() + self._ahead

    def get(self, path: str, *, accept: str = "application/json", **query: str) -> ApiAnswer | None:
        """The object or list; None when it does not exist."""
        try:
            return self.request("GET", path, query=query, accept=accept)
        except ApiRefused as error:
            if error.status == 404:
                return None
            raise

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content: str = "application/json",
        accept: str = "application/json",
        query: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> ApiAnswer:
        """The answer to a successful request. Raises ApiRefused; raises Unreachable when `patience` seconds of trying
        brought only lost connections, 429 and 5xx."""
        url = self._url(path, query)
        headers = {"accept": accept}
        if body is not None:
            headers["content-type"] = content
        began, tries, refused_header = time.monotonic(), 0, None
        while True:
            self._hold()
            pause, trouble = 0.0, ""
            header = self._header()
            try:
                response = self._send(method, url, headers, body, tries, header)
            except _Lost as error:
                trouble = str(error)
                if error.final:
                    raise Unreachable(f"cluster {self.where}: {trouble}") from None
            else:
                self._answered = True
                self._date(response.headers.get("date") or "")
                if response.status < 400:
                    if not response.data.lstrip().startswith(b"{"):  # a proxy's page, or another kind of server
                        raise Unreachable(
                            f"cluster {self.where}: the server that answers is not a Kubernetes API server"
                        )
                    return ApiAnswer(response.status, response.data, _warnings(response.headers.get("warning")))
                refused = _refusal(response.status, response.data, f"{method} {path.rpartition('/apis/')[2]}")
                if response.status == 401:
                    self.login.credentials.refuse(header)
                    if refused_header is not None:  # another login of this user was refused too
                        raise Unreachable(f"cluster {self.where} refuses the credentials: {refused.message}")
                    refused_header = header
                elif response.status not in AGAIN and not _passing(refused):
                    raise refused
                trouble = refused.message or str(refused.status)
                pause = _retry_after(response.headers.get("retry-after"))
                if response.status == 429:
                    self._not_before = time.monotonic() + (pause or 1.0)
            tries += 1
            # full jitter: requests that were refused together must not return together
            pause = max(pause, random.uniform(0.05, min(4.0, 0.1 * 2**tries)))
            remaining = (patience if self._answered else min(patience, FIRST)) - (time.monotonic() - began)
            if remaining < pause:
                raise Unreachable(f"cluster {self.where}: {trouble}")
            time.sleep(pause)

    def stream(self, path: str, *, query: Mapping[str, str], read: float) -> Any:
        """An open response whose body arrives piece by piece; the caller closes it. `read`: seconds without data after
        which the connection counts as lost. Raises ApiRefused, Unreachable. Does not retry."""
        self._hold()
        header, before = self._header(), asleep()
        try:
            url = self._url(path, query)
            response = self._send("GET", url, {"accept": "*/*"}, None, 0, header, read=read, whole=False)
        except _Lost as error:
            raise Unreachable(f"cluster {self.where}: {error}") from None
        if response.status >= 400:
            body = response.read()
            response.release_conn()
            refused = _refusal(response.status, body, f"GET {path}")
            if response.status == 401:
                self.login.credentials.refuse(header)
            if response.status in AGAIN or response.status == 401:
                raise Unreachable(f"cluster {self.where}: {refused.message or response.status}")
            raise refused
        self._answered = True
        return self._streams.add(response, before)

    def pages(self, path: str, *, accept: str = "application/json", **query: str) -> Iterator[Any]:
        """The decoded pages of a list; none where the cluster does not know the kind. A list whose continuation token
        has expired starts again, so an item may come twice."""
        following, restarted = "", 0
        while True:
            try:
                answer = self.request(
                    "GET", path, accept=accept, query={**query, "limit": "500", "continue": following}
                )
            except ApiRefused as error:
                if error.status == 404:
                    return
                if error.status == 410 and following and restarted < 5:
                    following, restarted = "", restarted + 1
                    continue
                raise
            page = answer.json()
            yield page
            following = (page.get("metadata") or {}).get("continue") or ""
            if not following:
                return

    def _header(self) -> str:
        """The login for the next request; connections of the next request have its certificate. Raises Unreachable."""
        credentials = self.login.credentials
        try:
            header, certificate = credentials.header(), credentials.certificate()
        except NoCredentials as error:
            raise Unreachable(f"cluster {self.where}: no login: {error.said}") from None
        if certificate is not None and certificate != self._certificate:
            with self._lock:
                if certificate != self._certificate:
                    configuration = self.login.configuration
                    configuration.cert_file, configuration.key_file = map(str, certificate)
                    # connections of the old one end with their requests
                    self._pool, self._certificate = _pool_of(self.login), certificate
        return header

    def _with_login(self, headers: Mapping[str, str], header: str) -> Any:
        import urllib3

        login = {"authorization": header} if header else {}
        merged = urllib3.HTTPHeaderDict({**headers, **login, "user-agent": "slipway"})
        for name, value in self.login.impersonates:
            merged.add(name, _as_utf8(value))
        return merged

    def _date(self, said: str) -> None:
        """Compares the clocks. `said`: a header Date, in whole seconds."""
        if said != self._dated:
            from email.utils import parsedate_to_datetime  # rendering does without it

            self._dated = said
            with suppress(ValueError):
                self._ahead = parsedate_to_datetime(said).timestamp() - time.time()

    def close(self) -> None:
        self._pool.clear()

    def _hold(self) -> None:
        while (pause := self._not_before - time.monotonic()) > 0:
            time.sleep(min(pause, 1.0))

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        params = {key: value for key, value in (query or {}).items() if value}
        return f"{self.host}{path}" + (f"?{urlencode(params, quote_via=quote)}" if params else "")

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        tries: int,
        header: str,
        *,
        read: float = READ,
        whole: bool = True,
    ) -> Any:
        import urllib3

        try:
            return self._pool.urlopen(
                method,
                url,
                headers=self._with_login(headers, header),
                body=body,
                retries=False,
                redirect=False,
                preload_content=whole,
                timeout=urllib3.Timeout(connect=CONNECT, read=read),
            )
        except urllib3.exceptions.ProxyError as error:
            raise _Lost(_of_proxy(str(self.login.configuration.proxy), error), False) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _lost(error, self._answered or tries > 0) from None


def _pool_of(login: Login) -> Any:
    import ssl

    from kubernetes.client.rest import RESTClientObject

    try:
        return RESTClientObject(login.configuration).pool_manager
    except (OSError, ssl.SSLError, ValueError) as error:
        raise Unreachable(f"cluster {login.configuration.host}: no connection can be set up: {error}") from None


def _as_utf8(value: str) -> str:
    """A header's value, of which http.client sends the Latin-1 bytes, as UTF-8, which kubectl sends."""
    return value.encode().decode("latin-1")


class _Lost(Exception):
    """No answer. `final`: a retry would not help either."""

    def __init__(self, message: str, final: bool) -> None:
        super().__init__(message)
        self.final = final


def _lost(error: Exception, answered: bool) -> _Lost:
    import urllib3

    if isinstance(error, urllib3.exceptions.SSLError):
        text = str(error)
        return _Lost(f"TLS: {text}", "CERTIFICATE_VERIFY" in text.upper() and not answered)
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return _Lost("its name is not known here", not answered)
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return _Lost("the connection is refused", False)
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return _Lost("it does not answer in time", False)
    return _Lost("the connection broke", False)


def _of_proxy(url: str, error: Any) -> str:
    """What is wrong with the way through a proxy, without the password in its URL."""
    import urllib3

    address = urlsplit(url).netloc.rpartition("@")[2]
    cause = error.original_error
    if isinstance(cause, urllib3.exceptions.NewConnectionError | urllib3.exceptions.TimeoutError):
        return f"the proxy {address} does not answer"
    return f"the proxy {address} refuses: {cause}"  # Tunnel connection failed: 407 ...


def hang_up(response: Any) -> None:
    """Closes a stream and its connection, which would otherwise stay open after the stream was read to its end."""
    connection = response.connection
    response.close()
    if connection is not None:
        connection.close()


def _refusal(status: int, body: bytes, request: str) -> ApiRefused:
    try:
        answer = decode(body, _Status)
    except msgspec.MsgspecError:
        answer = _Status(message=body[:300].decode("utf-8", "replace").strip())
    return ApiRefused(status, answer.reason, answer.message, request)


def _passing(refused: ApiRefused) -> bool:
    """Whether a 409 is temporary: two requests changed a quota at the same time."""
    return refused.status == 409 and refused.reason == "Conflict" and "resourcequotas" in refused.message


def _retry_after(value: str | None) -> float:
    try:
        return min(LONGEST_PAUSE, max(0.0, float(value or 0)))
    except ValueError:
        return 1.0


def _warnings(value: str | None) -> tuple[str, ...]:
    """The texts of a Warning header, `299 - "text", 299 - "text"` (RFC 7234, 5.5)."""
    if not value:
        return ()
    texts, position = [], 0
    while (start := value.find('"', position)) >= 0:
        text, position = [], start + 1
        while position < len(value) and value[position] != '"':
            if value[position] == "\\":
                position += 1
            text.append(value[position : position + 1])
            position += 1
        texts.append("".join(text))
        position += 1
    return tuple(texts)
