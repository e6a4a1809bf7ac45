"""The store's credentials: which variables hold them, and how they are kept from the command.

The command gets none of them unless its job says `store_access: true`. They are left out of its environment; files in
which a backend passed them are emptied after they were read; the runtime's memory cannot be read through /proc. Their
values are always masked, as the job's secrets are.

What this cannot do: a process of the same user can read what that user can read (~/.aws, another process's memory where
it has CAP_SYS_PTRACE), and any process of a pod or a machine can ask the metadata service for its identity.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from launcher.spec.model import ResolvedJob
from launcher.spec.secrets.disclosure import secret_name

PRIVATE: Final = "SLIPWAY_PRIVATE"  # a file with variables that no `docker inspect` shows
HIDE: Final = "SLIPWAY_HIDE"  # files with credentials, separated by colons; copies that the runtime reads and empties
# the last three: the address and the word by which a node of Azure gives its identity's tokens
_STORES: Final = re.compile(
    r"(?:AWS|AZURE|GOOGLE|GCS|CLOUDSDK)_[A-Za-z0-9_]+|(?:MSI|IDENTITY|OBO)_ENDPOINT|MSI_SECRET|IDENTITY_HEADER"
)
# where the store is and how it is asked; a command that opens another bucket by credentials of its own wants them, too
_PLACE: Final = re.compile(
    r"AWS_(?:REGION|DEFAULT_REGION|DEFAULT_OUTPUT|ENDPOINT_URL(?:_[A-Z0-9_]+)?|CA_BUNDLE|MAX_ATTEMPTS|RETRY_MODE"
    r"|EC2_METADATA_DISABLED|STS_REGIONAL_ENDPOINTS|USE_[A-Z_]+)"
    r"|AZURE_STORAGE_ACCOUNT(?:_NAME)?|GOOGLE_CLOUD_(?:PROJECT|REGION|LOCATION)"
)
_PROXY: Final = re.compile(r"(?:https?|all)_proxy", re.IGNORECASE)
# variables that name a file with credentials
_FILES: Final = (
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
)
_SHORTEST: Final = 6  # characters; a shorter value would mask ordinary words
_LARGEST: Final = 1 << 20  # bytes of such a file
_ENCODED: Final = 8  # characters; the encoded forms of a shorter value would be ordinary words
_PR_SET_DUMPABLE: Final = 4


def is_credential(name: str, value: str = "") -> bool:
    """Whether a variable holds credentials of a store. A URL with a user name does, whatever the variable is called."""
    if _STORES.fullmatch(name) is None:
        return False
    return _PLACE.fullmatch(name) is None or "@" in value


def for_command(environ: Mapping[str, str], job: ResolvedJob) -> dict[str, str]:
    """The runtime's environment without the store's credentials, unless the job asks for them. What the job itself
    names under `secrets` stays."""
    if job.store_access:
        return dict(environ)
    return {name: value for name, value in environ.items() if name in job.secrets or not is_credential(name, value)}


def cannot_be_read() -> None:
    """From now on no process without CAP_SYS_PTRACE can read this process's environment, memory or descriptors, not
    even one of the same user. A child keeps this protection until it starts another program."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_private(environ: MutableMapping[str, str]) -> None:
    """Reads credentials and secrets that were passed in files into this process, and empties the files."""
    hidden = environ.pop(HIDE, "").split(os.pathsep)
    path = environ.pop(PRIVATE, None)
    if path:
        environ.update(json.loads(Path(path).read_bytes()))
    for name in _FILES:
        if (file := environ.get(name, "")) in hidden and file:
            with contextlib.suppress(OSError):
                environ[name] = _kept(Path(file).read_bytes())
    for file in {*hidden, path or ""} - {""}:
        # one that cannot be written was placed by an older launcher: it stays, as it did then
        with contextlib.suppress(OSError):
            os.truncate(file, 0)


def _kept(body: bytes) -> str:
    """A path with this content that only this process can open."""
    handle = os.memfd_create("slipway", os.MFD_CLOEXEC)
    view = memoryview(body)
    while view:
        view = view[os.write(handle, view) :]
    return f"/proc/self/fd/{handle}"


def values(environ: Mapping[str, str]) -> set[str]:
    """The values that must not be shown: keys and tokens in the environment, passwords of proxies, and the secrets in
    files that variables name. The name of a profile or a region is no secret."""
    secrets: set[str] = set()
    for name, value in environ.items():
        if is_credential(name, value) and (secret_name(name) or name.endswith("_ACCESS_KEY_ID")):
            secrets.add(value)
            if value.lstrip().startswith("{"):  # a service account's key, which is a file's content
                with contextlib.suppress(ValueError):
                    secrets |= set(_of_json(json.loads(value)))
        if _PROXY.fullmatch(name) or (is_credential(name, value) and "@" in value):
            user = value.partition("://")[2].rpartition("@")[0]
            password = user.partition(":")[2]
            secrets |= {password, unquote(password)}
    for file in _credential_files(environ):
        with contextlib.suppress(OSError, ValueError):
            if file.stat().st_size <= _LARGEST:
                secrets |= set(_within(file.read_text(encoding="utf-8")))
    return {value for value in secrets if len(value) >= _SHORTEST}


def _credential_files(environ: Mapping[str, str]) -> Iterator[Path]:
    for name in _FILES:
        if environ.get(name):
            yield Path(environ[name])
    if environ.get("HOME") and not environ.get("AWS_SHARED_CREDENTIALS_FILE"):
        yield Path(environ["HOME"], ".aws", "credentials")


def _within(text: str) -> Iterator[str]:
    """The secrets of a file of credentials: JSON, INI, or one token."""
    body = text.strip()
    if body.startswith("{"):
        yield from _of_json(json.loads(body))
    elif "\n" not in body and "=" not in body:
        yield body
    else:
        for line in body.splitlines():
            name, separator, value = line.partition("=")
            if separator and (secret_name(name.strip()) or name.strip().lower().endswith("_access_key_id")):
                yield value.strip()


def _of_json(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, str) and secret_name(str(name)):
                yield item
            else:
                yield from _of_json(item)
    elif isinstance(value, list):
        for item in value:
            yield from _of_json(item)


def with_encoded(secrets: Collection[str]) -> set[str]:
    """The secrets, and their forms in URLs and in base64 at each of its three alignments."""
    forms = set(secrets)
    for secret in secrets:
        body = secret.strip().encode(errors="surrogateescape")
        if len(body) < _ENCODED:
            continue
        forms |= {quote(body, safe=""), quote(body)}
        for shift in range(3):
            text = base64.b64encode(bytes(shift) + body)
            # characters at both ends hold bits of the text beside the secret, or are padding
            inner = text[(shift * 8 + 5) // 6 : (shift + len(body)) * 8 // 6].decode()
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return forms
