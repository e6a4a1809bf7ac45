"""Fetches the values of secrets that a backend names and cannot keep itself: whoever may read a machine's user data, or
a workspace's jobs, sees only where they are kept. The runtime asks with the access that its machine has."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from launcher.errors import Unreachable
from launcher.reasons import EXIT_AGAIN, EXIT_NEVER

if TYPE_CHECKING:
    from urllib.error import HTTPError

SECRETS: Final = "SLIPWAY_SECRETS"  # JSON: a secret of the job -> where it is kept
STORE_SECRETS: Final = "SLIPWAY_STORE_SECRETS"  # JSON: a variable that opens the store -> where its value is kept
FAULT: Final = "SLIPWAY_SECRETS_FAULT"  # why a secret of the job could not be fetched
# what a second try changes: AWS is busy or broken
_AGAIN: Final = ("Throttling", "ThrottlingException", "TooManyRequestsException", "InternalServiceError")


def fetch_secrets(environ: MutableMapping[str, str]) -> None:
    """Puts the values into the environment. A secret of the job that is refused stays without a value, and
    SLIPWAY_SECRETS_FAULT says why: the run ends with it. Raises SystemExit: to be started again, when there is no
    answer; for good, when what opens the store is refused, because then nothing can be told there."""
    for name, place in _places(environ, STORE_SECRETS).items():
        try:
            environ[name] = _value(name, place)
        except SecretRefused as error:
            print(f"[slipway] {name}, which opens the store: {error}", flush=True)
            raise SystemExit(EXIT_NEVER) from None
    for name, place in _places(environ, SECRETS).items():
        try:
            environ[name] = _value(name, place)
        except SecretRefused as error:
            environ[FAULT] = str(error)


def _places(environ: MutableMapping[str, str], variable: str) -> Mapping[str, str]:
    places: dict[str, str] = json.loads(environ.pop(variable, "") or "{}")
    return places


def _value(name: str, place: str) -> str:
    try:
        if place.startswith("arn:"):
            return _aws_value(place)
        return key_vault_value(place)
    except SecretUnanswered as error:
        print(f"[slipway] secret {name}: {error}", flush=True)
        raise SystemExit(EXIT_AGAIN) from None


def _aws_value(arn: str) -> str:
    """A secret of Secrets Manager, or a parameter of Systems Manager. The runtime asks with the short-lived credentials
    that it has for the store. Raises SecretRefused, SecretUnanswered."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    _, _, service, region, *_ = arn.split(":")
    try:
        client = boto3.client(service, region_name=region)
        if service == "ssm":
            return str(client.get_parameter(Name=arn, WithDecryption=True)["Parameter"]["Value"])
        return str(client.get_secret_value(SecretId=arn)["SecretString"])
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _AGAIN:
            raise SecretUnanswered(f"AWS: {code}") from None
        raise SecretRefused(f"AWS refuses {arn}: {code}") from None
    except BotoCoreError as error:
        raise SecretUnanswered(str(error)) from None


class SecretRefused(Exception):
    """Whoever keeps a secret refuses it. A second try would change nothing."""


class SecretUnanswered(Exception):
    """Whoever keeps a secret is busy, broken or not to be reached."""


# A secret of Azure Key Vault, asked for with the identity that a node of Azure ML gives to the run.

RESOURCE: Final = "https://vault.azure.net"
VERSION: Final = "7.4"  # of Key Vault's API
TIMEOUT: Final = 10.0  # seconds of one request
TRIES: Final = 4
PAUSE: Final = 2.0  # seconds before the second try; the next ones wait longer


def key_vault_value(url: str) -> str:
    """`url`: https://VAULT.vault.azure.net/secrets/NAME, or with a version. Raises SecretRefused, SecretUnanswered."""
    # few runs have such a secret, and every runtime's start would take longer
    import urllib.request
    from http.client import HTTPException
    from urllib.error import HTTPError

    from launcher.store.node_identity import identity_request, token

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """A redirect would send the identity's token to another address."""

        def redirect_request(self, *arguments: Any, **options: Any) -> None:
            return None

    request = identity_request(os.environ, RESOURCE)
    if request is None:
        raise SecretRefused(f"this node has no identity with which to ask for {url}: azureml.identity")
    try:
        given = token(request, RESOURCE)["token"]
    except Unreachable as error:
        raise SecretUnanswered(str(error)) from None
    opener = urllib.request.build_opener(NoRedirect())
    trouble = ""
    for number in range(TRIES):
        time.sleep(number * PAUSE)
        # a request that went through a proxy cannot be sent again: it has kept the proxy's place
        ask = urllib.request.Request(f"{url}?api-version={VERSION}", headers={"Accept": "application/json"})
        ask.add_unredirected_header("Authorization", f"Bearer {given}")
        try:
            with opener.open(ask, timeout=TIMEOUT) as answer:
                return str(json.loads(answer.read())["value"])
        except HTTPError as error:
            code = _code(error)
            if error.code < 500 and error.code not in (408, 429):
                raise SecretRefused(f"Key Vault refuses {url}: {code}") from None
            trouble = f"{error.code} {code}"
        except (OSError, HTTPException, ValueError, KeyError) as error:
            trouble = f"{type(error).__name__}: {error}"
    raise SecretUnanswered(f"Key Vault does not answer for {url}: {trouble}")


def _code(error: HTTPError) -> str:
    """The code of Key Vault's own answer, with the inner one, which says what is missing: Forbidden
    (ForbiddenByRbac)."""
    from http.client import HTTPException

    try:
        with error:
            fault = json.loads(error.read())["error"]
        inner = (fault.get("innererror") or {}).get("code") or ""
        return f"{fault['code']}{f' ({inner})' if inner else ''}"
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError):
        return str(error.code)
