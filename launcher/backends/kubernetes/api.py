"""Requests to a cluster's API server. The official client handles login; requests are built here.

The client reads kubeconfigs, runs credential plugins and sets TLS up. Its own calls build models of every field, which
is slow, so requests here send raw bytes over its connection pool (figures: docs/project/benchmarks.md 10). Every
request can be repeated: a second create answers 409, a second delete 404.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from launcher.backends.kubernetes.impersonation import impersonation, user_named
from launcher.errors import BadInput, SlipwayError, Unreachable

CONNECTIONS: Final = 32  # kept open; also the most requests at the same time
CONNECT: Final = 5.0  # seconds
READ: Final = 30.0
FIRST: Final = 6.0  # seconds of trying while the cluster has never answered: most likely it does not exist
PATIENCE: Final = 60.0  # seconds of trying one request once the cluster has answered
LONGEST_PAUSE: Final = 30.0  # seconds; a longer Retry-After is cut to this
AGAIN: Final = frozenset({429, 500, 502, 503, 504})
TOKEN_KEPT: Final = 5.0  # seconds before the client is asked for the token again; it renews expired ones
IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
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


@dataclass(frozen=True)
class Login:
    """A cluster and how to reach it. `context`: of the kubeconfig; empty inside a cluster."""

    configuration: Any
    context: str
    namespace: str  # the context's namespace, or `default`
    kubeconfig: str = ""
    impersonates: tuple[tuple[str, str], ...] = ()  # headers; a name may come more than once


class _Status(msgspec.Struct):
    """The fields of metav1.Status that are read here."""

    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


def login(context: str | None = None) -> Login:
    """The login from $KUBECONFIG, ~/.kube/config, or the service account of the pod that this process runs in.

    Raises BadInput for an unknown context, Unreachable for credentials that cannot be obtained.
    """
    try:  # imported only where a cluster is called: `launcher render` needs no SDK
        from kubernetes import config
        from kubernetes.client import Configuration
        from kubernetes.config.config_exception import ConfigException
        from yaml import YAMLError
    except ModuleNotFoundError as error:
        from launcher.install import install

        message = (
            f"backend `kubernetes` needs its SDK beside launcher: `{install('kubernetes')}` (missing: {error.name})"
        )
        raise BadInput(message) from None

    configuration = Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    # the client read $KUBECONFIG when it was imported, which may be long ago
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    kubeconfigs = [path for path in files.split(os.pathsep) if path and Path(path).is_file()]
    try:
        if not kubeconfigs:
            if context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(client_configuration=configuration)
                return Login(configuration, "", _read(IN_CLUSTER / "namespace") or "default")
            raise BadInput(f"no cluster: there is no kubeconfig at {files}; set KUBECONFIG")
        joined = os.pathsep.join(kubeconfigs)
        contexts, active = config.list_kube_config_contexts(config_file=joined)
        by_name = {entry["name"]: entry for entry in contexts or ()}
        if context is not None and context not in by_name:
            raise BadInput(f"no context `{context}` in {joined}; there is: {', '.join(sorted(by_name)) or 'none'}")
        chosen = by_name[context] if context is not None else active
        config.load_kube_config(
            config_file=joined, context=context, client_configuration=configuration, persist_config=False
        )
        user = user_named(kubeconfigs, str((chosen.get("context") or {}).get("user") or ""))
    except BadInput:
        raise
    except ConfigException as error:
        raise Unreachable(f"kubeconfig {files}: {error}") from None
    except (YAMLError, TypeError, AttributeError, LookupError, ValueError) as error:  # the file is not a kubeconfig
        raise Unreachable(f"kubeconfig {files}: not one: {' '.join(str(error).split())}") from None
    namespace = (chosen.get("context") or {}).get("namespace") or "default"
    return Login(configuration, str(chosen["name"]), str(namespace), joined, impersonation(user, joined))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


@dataclass
class Api:
    """A cluster. Thread-safe; connections are kept open and shared."""

    login: Login
    _pool: Any = field(init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _token: tuple[float, str] = (0.0, "")
    _answered: bool = False
    known: dict[str, tuple[float, bool]] = field(default_factory=dict)  # API group -> when asked, whether served
    # (namespace, kind) -> when listed, the objects that carry several runs
    shared: dict[tuple[str, str], tuple[float, list[Any]]] = field(default_factory=dict)
    _not_before: float = 0.0  # backpressure: a 429 to one request delays all of them

    def __post_init__(self) -> None:
        from kubernetes.client.rest import RESTClientObject

        self._pool = RESTClientObject(self.login.configuration).pool_manager

    @property
    def host(self) -> str:
        return str(self.login.configuration.host)

    @property
    def where(self) -> str:
        """The cluster's name in messages."""
        return f"{self.login.context} ({self.host})" if self.login.context else self.host

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
        began, tries = time.monotonic(), 0
        while True:
            self._hold()
            pause, trouble = 0.0, ""
            try:
                response = self._send(method, url, headers, body, tries)
            except _Lost as error:
                trouble = str(error)
                if error.final:
                    raise Unreachable(f"cluster {self.where}: {trouble}") from None
            else:
                self._answered = True
                if response.status < 400:
                    if not response.data.lstrip().startswith(b"{"):  # a proxy's page, or another kind of server
                        raise Unreachable(
                            f"cluster {self.where}: the server that answers is not a Kubernetes API server"
                        )
                    return ApiAnswer(response.status, response.data, _warnings(response.headers.get("warning")))
                refused = _refusal(response.status, response.data, f"{method} {path.rpartition('/apis/')[2]}")
                if response.status == 401:
                    if tries:
                        raise Unreachable(f"cluster {self.where} refuses the credentials: {refused.message}")
                    with self._lock:
                        self._token = (0.0, "")
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
        try:
            response = self._send("GET", self._url(path, query), {"accept": "*/*"}, None, 0, read=read, whole=False)
        except _Lost as error:
            raise Unreachable(f"cluster {self.where}: {error}") from None
        if response.status >= 400:
            body = response.read()
            response.release_conn()
            refused = _refusal(response.status, body, f"GET {path}")
            if response.status in AGAIN or response.status == 401:
                raise Unreachable(f"cluster {self.where}: {refused.message or response.status}")
            raise refused
        self._answered = True
        return response

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

    def headers(self) -> dict[str, str]:
        """The headers that authenticate a request."""
        with self._lock:
            at, token = self._token
            if time.monotonic() - at < TOKEN_KEPT and at:
                return {"authorization": token} if token else {}
            try:
                settings = self.login.configuration.auth_settings()
            except Exception as error:  # a credential plugin failed: the client may raise anything
                raise Unreachable(f"cluster {self.where}: no credentials: {error}") from None
            token = str((settings.get("BearerToken") or {}).get("value") or "")
            self._token = (time.monotonic(), token)
        return {"authorization": token} if token else {}

    def _with_login(self, headers: Mapping[str, str]) -> Any:
        import urllib3

        merged = urllib3.HTTPHeaderDict({**headers, **self.headers(), "user-agent": "slipway"})
        for name, value in self.login.impersonates:
            merged.add(name, _as_utf8(value))
        return merged

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
        *,
        read: float = READ,
        whole: bool = True,
    ) -> Any:
        import urllib3

        try:
            return self._pool.urlopen(
                method,
                url,
                headers=self._with_login(headers),
                body=body,
                retries=False,
                redirect=False,
                preload_content=whole,
                timeout=urllib3.Timeout(connect=CONNECT, read=read),
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _lost(error, self._answered or tries > 0) from None


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


def hang_up(response: Any) -> None:
    """Closes a stream and its connection, which would otherwise stay open after the stream was read to its end."""
    connection = response.connection
    response.close()
    if connection is not None:
        connection.close()


def _refusal(status: int, body: bytes, request: str) -> ApiRefused:
    try:
        answer = msgspec.json.decode(body, type=_Status)
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
