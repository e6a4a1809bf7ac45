"""A node's identity, compared with Microsoft's own clients of the same service."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from launcher.errors import Unreachable
from launcher.store import node_identity, open_store

CLIENT = "aaaaaaaa-0000-0000-0000-000000000001"


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow


class Service(ThreadingHTTPServer):
    """The token service at /token and /obo, and an empty blob store at every other path; it notes what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, list[str]], str | None]] = []
        self.shown: list[str | None] = []  # the Authorization of each request to the store
        self.failures = 0
        self.answer: dict[str, Any] = {"access_token": "token-1", "expires_on": int(time.time()) + 3600}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self.server.shown.append(self.headers.get("Authorization"))
        self.send_response(404)
        self.end_headers()

    def do_GET(self) -> None:
        if not self.path.startswith(("/token", "/obo")):
            return self.do_HEAD()
        path, _, query = self.path.partition("?")
        self.server.asked.append((path, parse_qs(query), self.headers.get("secret")))
        if self.server.failures:
            self.server.failures -= 1
            self.send_response(500)
            self.end_headers()
            return None
        body = json.dumps(self.server.answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name in (*node_identity.OTHERS, "MSI_ENDPOINT", "MSI_SECRET", "OBO_ENDPOINT", "DEFAULT_IDENTITY_CLIENT_ID"):
        monkeypatch.delenv(name, raising=False)
    server = Service()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("client", ["", CLIENT])
def test_a_managed_identity_is_asked_for_as_azure_identity_does(
    service: Service, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    from azure.identity import ManagedIdentityCredential

    monkeypatch.setenv("MSI_ENDPOINT", f"{service.url}/token")
    monkeypatch.setenv("MSI_SECRET", "word")
    monkeypatch.setenv("DEFAULT_IDENTITY_CLIENT_ID", client)
    theirs = ManagedIdentityCredential(**({"client_id": client} if client else {})).get_token(
        f"{node_identity.RESOURCE}/.default"
    )
    identity = node_identity.node_identity()
    assert identity is not None
    ours = identity()
    assert service.asked[0] == service.asked[1]
    assert service.asked[0][2] == "word"
    assert (ours["token"], int(ours["expires_at"].timestamp())) == (theirs.token, theirs.expires_on)  # type: ignore


def test_the_submitters_identity_is_asked_for_as_azure_ai_ml_does(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from azure.ai.ml.identity import AzureMLOnBehalfOfCredential

    monkeypatch.setenv("OBO_ENDPOINT", f"{service.url}/obo")
    theirs = AzureMLOnBehalfOfCredential().get_token(f"{node_identity.RESOURCE}/.default")
    identity = node_identity.node_identity()
    assert identity is not None
    assert identity()["token"] == theirs.token  # type: ignore[typeddict-item]
    assert service.asked[0] == service.asked[1]


def test_the_store_sends_the_identitys_token(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSI_ENDPOINT", f"{service.url}/token")
    monkeypatch.setenv("MSI_SECRET", "word")
    service.failures = 1  # the service of a busy node
    store = open_store(f"az://runs/slipway?account=labstore&endpoint={service.url}")
    assert store.head("runs/x/job.json") is None
    assert service.shown == ["Bearer token-1"]


def test_without_a_token_the_store_is_unreachable_and_says_why(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_identity, "TRIES", 1)
    service.failures = 1000
    identity = node_identity.NodeIdentity(node_identity.TokenRequest(f"{service.url}/token", {}))
    with pytest.raises(Unreachable, match=r"the node's identity gives no token for .*: HTTPError"):
        identity()
