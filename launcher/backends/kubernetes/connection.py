"""The cluster and the namespace that a job's options name, with the queries that all parts of this backend share."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from launcher.backends.base import BackendObservation
from launcher.backends.kubernetes.access.login import Login, login
from launcher.backends.kubernetes.api import Api
from launcher.backends.kubernetes.objects import Kind
from launcher.backends.kubernetes.watch.snapshot import Owner, Snapshot
from launcher.backends.kubernetes.watch.state_reader import StateReader
from launcher.errors import BadInput

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
