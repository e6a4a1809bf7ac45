"""Which account of Lambda a launch was sent to. That there is no machine of an id is true for the account of the key
that asks; to the key of another account Lambda says it of every machine that lives.

Lambda has no name for an account. So each record of a launch holds a digest of the API key, and the id of the SSH key
that the machine got: an SSH key is its account's, whoever of it asks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

from launcher.backends.lambda_labs.api import LambdaApi
from launcher.backends.lambda_labs.names import NAME
from launcher.decoding import decode_record
from launcher.errors import Unreachable
from launcher.protocol.records import Event
from launcher.store.base import Store
from launcher.store.layout import RunKeys

KEY, SSH_KEY = "key", "ssh_key"  # fields of the records of a launch
STATES: Final = ("asked", "launched")


def marks(api: LambdaApi, run: str, ssh_key: str) -> dict[str, str]:
    """What the records of a launch say of its account. Raises Unreachable."""
    found = api.ssh_keys.get(ssh_key, "")
    return {KEY: _digest(api, run), **({SSH_KEY: found} if found else {})}


def refuse_others(api: LambdaApi, store: Store, run: str) -> None:
    """Raises Unreachable where the machines of a run are another account's than this API key's, or nobody can tell.
    Asked where Lambda shows none of them."""
    records = list(_launches(store, run))
    if not any(KEY in fields for fields in records):  # none, or of a launcher that did not record it
        return
    own = _digest(api, run)
    if any(fields.get(KEY) == own for fields in records):
        return
    if {fields[SSH_KEY] for fields in records if SSH_KEY in fields}.intersection(api.ssh_keys.values()):
        return
    if any(api.instance(fields["instance"]) is not None for fields in records if "instance" in fields):
        return
    raise Unreachable(
        f"{run}: its machines were launched in another account of Lambda than the one of this LAMBDA_API_KEY (or with "
        "an API key and an SSH key that are both gone): use a key of that account"
    )


def _digest(api: LambdaApi, run: str) -> str:
    return hashlib.sha256(f"{run} {api.key}".encode()).hexdigest()[:16]


def _launches(store: Store, run: str) -> Iterator[Mapping[str, str]]:
    for meta in list(store.scan(f"{RunKeys(run).events}0-{NAME}-")):
        answer = store.read(meta.key)
        if answer is not None:
            fields = decode_record(meta.key, answer[0], Event).fields
            if fields.get("state") in STATES:
                yield fields
