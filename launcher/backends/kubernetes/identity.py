"""Which cluster this is, and which of the vendored schemas fit it."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from launcher.backends.kubernetes import schemas
from launcher.backends.kubernetes.access.login import Login
from launcher.backends.kubernetes.api import Api
from launcher.errors import SlipwayError
from launcher.protocol.authorities import authorities

_versions: dict[str, Version] = {}  # address of an API server -> its version
_lock: Final = threading.Lock()


class Version(NamedTuple):
    """`schemas`: the nearest vendored version. `note`: a warning when that is not the cluster's own version."""

    schemas: str
    note: str = ""


def authorities_of(login: Login) -> frozenset[str]:
    """The cluster's root certificates, by which its pods know it too. Empty where the login has none (a proxy before
    the API server, a certificate of a public authority)."""
    bundle = getattr(login.configuration, "ssl_ca_cert", None)
    try:
        return frozenset(authorities(Path(bundle).read_text())) if bundle else frozenset()
    except (OSError, UnicodeDecodeError):
        return frozenset()


def version_of(api: Api) -> Version:
    """The version of a cluster, asked once for each process. A cluster that does not answer this counts as the
    default."""
    with _lock:
        if api.host not in _versions:
            try:
                answer = api.get("/version")
                answered = answer.json() if answer is not None else {}
            except SlipwayError:
                answered = {}
            _versions[api.host] = nearest(f"{answered.get('major', '')}.{answered.get('minor', '')}", api.where)
        return _versions[api.host]


def nearest(said: str, where: str, there: Sequence[str] = schemas.VERSIONS) -> Version:
    """`said`: MAJOR.MINOR as GET /version has it; providers write `34+`.

    >>> nearest("1.34+", "x"), nearest("1.99", "x").schemas == schemas.VERSIONS[-1], nearest("", "x").note
    (Version(schemas='1.34', note=''), True, '')
    """
    match = re.match(r"(\d+)\.(\d+)", said)
    if match is None:
        return Version(schemas.DEFAULT)
    minor = (int(match[1]), int(match[2]))
    numbers = {version: tuple(int(part) for part in version.split(".")) for version in there}
    chosen = max((version for version in there if numbers[version] <= minor), key=numbers.__getitem__, default=there[0])
    if numbers[chosen] == minor:
        return Version(chosen)
    older = minor < numbers[chosen]
    return Version(
        chosen,
        f"cluster {where} has Kubernetes {minor[0]}.{minor[1]}, {'older' if older else 'newer'} than the schemas here "
        f"({there[0]} to {there[-1]}): offline checks used the schemas of {chosen}; its own dry run decides",
    )
