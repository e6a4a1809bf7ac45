"""Fetches the values of secrets that a backend names and cannot keep itself: whoever may read a machine's user data, or
a workspace's jobs, sees only where they are kept. The runtime asks with the access that its machine has."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from typing import Final

from launcher.reasons import EXIT_AGAIN, EXIT_NEVER
from launcher.runtime.secrets.faults import SecretRefused, SecretUnanswered

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
        from launcher.runtime.secrets import vault

        return vault.value(place)
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
