"""A secret of Azure Key Vault, asked for with the identity that a node of Azure ML gives to the run."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, Final

from launcher.errors import Unreachable
from launcher.runtime.secrets.faults import SecretRefused, SecretUnanswered
from launcher.store.node_identity import identity_request, token

RESOURCE: Final = "https://vault.azure.net"
VERSION: Final = "7.4"  # of Key Vault's API
TIMEOUT: Final = 10.0  # seconds of one request
TRIES: Final = 4
PAUSE: Final = 2.0  # seconds before the second try; the next ones wait longer


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the identity's token to another address."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        return None


def value(url: str) -> str:
    """`url`: https://VAULT.vault.azure.net/secrets/NAME, or with a version. Raises SecretRefused, SecretUnanswered."""
    request = identity_request(os.environ, RESOURCE)
    if request is None:
        raise SecretRefused(f"this node has no identity with which to ask for {url}: azureml.identity")
    try:
        given = token(request, RESOURCE)["token"]
    except Unreachable as error:
        raise SecretUnanswered(str(error)) from None
    opener = urllib.request.build_opener(_NoRedirect())
    trouble = ""
    for number in range(TRIES):
        time.sleep(number * PAUSE)
        # a request that went through a proxy cannot be sent again: it has kept the proxy's place
        ask = urllib.request.Request(f"{url}?api-version={VERSION}", headers={"Accept": "application/json"})
        ask.add_unredirected_header("Authorization", f"Bearer {given}")
        try:
            with opener.open(ask, timeout=TIMEOUT) as answer:
                return str(json.loads(answer.read())["value"])
        except urllib.error.HTTPError as error:
            code = _code(error)
            if error.code < 500 and error.code not in (408, 429):
                raise SecretRefused(f"Key Vault refuses {url}: {code}") from None
            trouble = f"{error.code} {code}"
        except (OSError, HTTPException, ValueError, KeyError) as error:
            trouble = f"{type(error).__name__}: {error}"
    raise SecretUnanswered(f"Key Vault does not answer for {url}: {trouble}")


def _code(error: urllib.error.HTTPError) -> str:
    """The code of Key Vault's own answer, with the inner one, which says what is missing: Forbidden
    (ForbiddenByRbac)."""
    try:
        with error:
            fault = json.loads(error.read())["error"]
        inner = (fault.get("innererror") or {}).get("code") or ""
        return f"{fault['code']}{f' ({inner})' if inner else ''}"
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError):
        return str(error.code)
