"""Fetches a job's secrets from AWS, for a backend that can keep none itself: a machine whose user data anybody with an
account's password can read. The runtime asks with the short-lived credentials that it has for the store."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any, Final

from launcher.reasons import EXIT_AGAIN

SECRETS: Final = "SLIPWAY_SECRETS"  # JSON: the secret's name -> its ARN
FAULT: Final = "SLIPWAY_SECRETS_FAULT"  # why a secret could not be fetched
# what a second try changes: AWS is busy or broken
_AGAIN: Final = ("Throttling", "ThrottlingException", "TooManyRequestsException", "InternalServiceError")


def fetch_secrets(environ: MutableMapping[str, str]) -> None:
    """Puts the values of the secrets that SLIPWAY_SECRETS names into the environment. One that AWS refuses stays
    without a value, and SLIPWAY_SECRETS_FAULT says why. Raises SystemExit, to be started again, when AWS does not
    answer."""
    places: dict[str, str] = json.loads(environ.pop(SECRETS, "") or "{}")
    if not places:
        return
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    for name, arn in places.items():
        try:
            environ[name] = _value(boto3, arn)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _AGAIN:
                raise SystemExit(EXIT_AGAIN) from None
            environ[FAULT] = f"AWS refuses {arn}: {code}"
        except BotoCoreError as error:
            print(f"[slipway] secret {name}: {error}", flush=True)
            raise SystemExit(EXIT_AGAIN) from None


def _value(boto3: Any, arn: str) -> str:
    _, _, service, region, *_ = arn.split(":")
    client = boto3.client(service, region_name=region)
    if service == "ssm":
        return str(client.get_parameter(Name=arn, WithDecryption=True)["Parameter"]["Value"])
    return str(client.get_secret_value(SecretId=arn)["SecretString"])
