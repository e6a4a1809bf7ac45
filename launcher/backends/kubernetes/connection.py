"""The cluster and the namespace that a job's options name: which cluster it is, which of the vendored schemas fit it,
and the queries that all parts of this backend share."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from launcher.backends.base import BackendObservation
from launcher.backends.kubernetes import schemas
from launcher.backends.kubernetes.access.login import Login, login
from launcher.backends.kubernetes.api import Api
from launcher.backends.kubernetes.objects import Kind
from launcher.backends.kubernetes.watch.snapshot import Owner, Snapshot
from launcher.backends.kubernetes.watch.state_reader import StateReader
from launcher.errors import BadInput, SlipwayError
from launcher.protocol.records import authorities

_shared: dict[tuple[str, str], Api] = {}
_lock = threading.Lock()


def shared(context: str | None) -> Api:
    """One Api for each cluster and process: its connections and token are shared."""
    key = (os.environ.get("KUBECONFIG", ""), context or "")
    with _lock:
        if key not in _shared:
            try:
                _shared[key] = Api(login(context))
            except ModuleNotFoundError as error:  # rendering needs no SDK, so a missing one shows only here
                if (error.name or "").partition(".")[0] != "kubernetes":
                    raise
                from launcher.install import install

                raise BadInput(
                    f"backend `kubernetes` needs its SDK beside launcher: `{install('kubernetes')}`"
                ) from None
        return _shared[key]


def close_all() -> None:
    """Ends every connection of this process."""
    with _lock:
        for api in _shared.values():
            api.close()
        _shared.clear()


class Connection:
    """`options`: namespace, context (of the kubeconfig). Sends no request until it is used."""

    def __init__(self, options: Mapping[str, object]) -> None:
        self.options = options

    @property
    def api(self) -> Api:
        return shared(str(self.options["context"]) if self.options.get("context") else None)

    @property
    def login(self) -> Login:
        return self.api.login

    @property
    def namespace(self) -> str:
        return str(self.options.get("namespace") or self.login.namespace)

    @property
    def looking(self) -> StateReader:
        return StateReader(self.api, self.namespace)

    def look_closely(self, run: str) -> tuple[BackendObservation | None, Snapshot, Owner | None]:
        """The run's present state in the cluster, with the snapshot and the owner from which it was read."""
        return self.looking.closely(run)

    def serves(self, kind: Kind) -> bool:
        return self.looking.serves(kind)


_versions: dict[str, Version] = {}  # address of an API server -> its version
_identity_lock: Final = threading.Lock()


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
    with _identity_lock:
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
