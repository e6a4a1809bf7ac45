"""Fetches the values of secrets that a backend names and cannot keep itself: whoever may read a machine's user data, or
a workspace's jobs, sees only where they are kept. The runtime asks with the access that its machine has."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from typing import Final

from launcher.reasons import EXIT_AGAIN, EXIT_NEVER
from launcher.runtime.secret_faults import SecretRefused, SecretUnanswered

SECRETS: Final = "SLIPWAY_SECRETS"  # JSON: a secret of the job -> where it is kept
STORE_SECRETS: Final = "SLIPWAY_STORE_SECRETS"  # JSON: a variable that opens the store -> where its value is kept
FAULT: Final = "SLIPWAY_SECRETS_FAULT"  # why a secret of the job could not be fetched


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
            from launcher.runtime import aws_secrets

            return aws_secrets.value(place)
        from launcher.runtime import vault_secrets

        return vault_secrets.value(place)
    except SecretUnanswered as error:
        print(f"[slipway] secret {name}: {error}", flush=True)
        raise SystemExit(EXIT_AGAIN) from None
