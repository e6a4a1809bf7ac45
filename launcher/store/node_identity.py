"""The identity that a node of Azure ML gives to a run, for stores in az:// and for secrets of Key Vault.

Compute of Azure ML has a token service of its own, at the address in MSI_ENDPOINT with the word in MSI_SECRET; obstore
only knows that of virtual machines. A run that has its submitter's identity finds OBO_ENDPOINT instead. What is sent,
and how the answer is read, is what azure-identity's AzureMLCredential and azure-ai-ml's AzureMLOnBehalfOfCredential do.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode

from launcher.errors import Unreachable

if TYPE_CHECKING:
    from obstore.store import AzureBearerToken

RESOURCE: Final = "https://storage.azure.com"
TIMEOUT: Final = 10.0  # seconds of one request
TRIES: Final = 4  # the service is on the node; it is away while the node gets busy
VERSION: Final = "2017-09-01"
# credentials that a user gave on purpose come first
OTHERS: Final = (
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
)


class TokenRequest(NamedTuple):
    url: str
    headers: Mapping[str, str]


def token_request(environ: Mapping[str, str]) -> TokenRequest | None:
    """The request for a token of the storage; None where there is no such service, or other credentials are set."""
    if any(environ.get(name) for name in OTHERS):
        return None
    return identity_request(environ, RESOURCE)


def identity_request(environ: Mapping[str, str], resource: str) -> TokenRequest | None:
    """The request for a token of a resource; None where there is no such service."""
    if endpoint := environ.get("OBO_ENDPOINT"):
        return TokenRequest(f"{endpoint}?{urlencode({'resource': resource})}", {})
    endpoint, secret = environ.get("MSI_ENDPOINT"), environ.get("MSI_SECRET")
    if not endpoint or not secret:
        return None
    query = {"api-version": VERSION, "resource": resource}
    if client := environ.get("DEFAULT_IDENTITY_CLIENT_ID"):
        query["clientid"] = client
    return TokenRequest(f"{endpoint}?{urlencode(query)}", {"secret": secret})


class NodeIdentity:
    """Gives obstore a token whenever it asks: when there is none yet, and before one expires. Raises Unreachable."""

    def __init__(self, request: TokenRequest) -> None:
        self._request = request

    def __call__(self) -> AzureBearerToken:
        return token(self._request, RESOURCE)


def token(request: TokenRequest, resource: str) -> AzureBearerToken:
    """A token of the node's identity. Raises Unreachable."""
    from http.client import HTTPException
    from urllib.request import ProxyHandler, Request, build_opener

    opener = build_opener(ProxyHandler({}))  # the service is on the node
    trouble = ""
    for number in range(TRIES):
        time.sleep(number)
        try:
            with opener.open(Request(request.url, headers=dict(request.headers)), timeout=TIMEOUT) as answer:
                content = json.loads(answer.read())
            return {"token": content["access_token"], "expires_at": _expiry(content)}
        except (OSError, HTTPException, ValueError, KeyError) as error:
            trouble = f"{type(error).__name__}: {error}"
    raise Unreachable(f"the node's identity gives no token for {resource}: {trouble}")


def node_identity() -> NodeIdentity | None:
    """That of this process's node; None elsewhere."""
    request = token_request(os.environ)
    return NodeIdentity(request) if request is not None else None


def _expiry(content: Mapping[str, str]) -> datetime:
    if content.get("expires_on"):
        return datetime.fromtimestamp(int(content["expires_on"]), UTC)
    return datetime.fromtimestamp(time.time() + int(content["expires_in"]), UTC)
