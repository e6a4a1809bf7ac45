"""Which Jobs and JobSets Flux keeps in place, by its own lists: the inventory in the status of each Kustomization.

With `ssa: IfNotPresent`, as k8s/gitops/flux has it, Flux leaves no mark on an object that was there before its file was
committed; only the inventory names it (kustomize-controller 1.9.5, internal/inventory: what is skipped is listed, too).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from launcher.backends.kubernetes.api import Api, ApiRefused
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.objects import CARRIERS, Kind
from launcher.spec.check.schema import RUN_ID

KUSTOMIZATION: Final = Kind("Kustomization", "/apis/kustomize.toolkit.fluxcd.io/v1", "kustomizations")
SYSTEM: Final = "flux-system"  # where Flux is, and where k8s/gitops/flux puts its Kustomizations
_KINDS: Final = frozenset(f"{kind.group.split('/')[2]}_{kind.name}" for kind in CARRIERS)
# what follows an object's name in those of its pods: of a Job, one with indexes or not, and of a JobSet
_OF_POD: Final = re.compile(r"-(?:\d{1,6}-|[a-z0-9-]+-\d{1,6}-\d{1,6}-)?[a-z0-9]{5}")


def listed(connection: Connection) -> frozenset[tuple[str, str]]:
    """(namespace, name) of every Job and JobSet in Flux' inventories; none where the cluster has no Flux, and where
    this login may read Kustomizations neither in all namespaces nor in Flux' own."""
    if not connection.serves(KUSTOMIZATION):
        return frozenset()
    for space in ("", SYSTEM):
        try:
            return frozenset(_entries(connection.api, space))
        except ApiRefused as error:
            if error.status != 403:
                raise
    return frozenset()


def _entries(api: Api, space: str) -> Iterator[tuple[str, str]]:
    for page in api.pages(KUSTOMIZATION.path(space)):
        for item in page.get("items") or ():
            yield from entries(item)


def entries(kustomization: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The same of one Kustomization, whose entries are NAMESPACE_NAME_GROUP_KIND.

    >>> listed = [{"id": "team_count-0a1b_batch_Job"}, {"id": "team_files__v1_ConfigMap"}]
    >>> list(entries({"status": {"inventory": {"entries": listed}}}))
    [('team', 'count-0a1b')]
    """
    inventory = (kustomization.get("status") or {}).get("inventory") or {}
    for entry in inventory.get("entries") or ():
        namespace, _, rest = str(entry.get("id")).partition("_")
        name, _, kind = rest.partition("_")
        if kind in _KINDS:
            yield namespace, name


def holds(name: str, run: str, pods: Collection[str]) -> bool:
    """Whether an object of this name is the run's: by its name, or by its pods' where the object is of several runs.
    Of other people's objects, whose names may be the beginning of a run's, none is.

    >>> holds("count-0123456789ab", "count-0123456789ab", [])
    True
    >>> holds("all-ba9876543210", "count-0123456789ab", ["all-ba9876543210-count-0-0-x7k2p"])
    True
    >>> holds("count", "count-0123456789ab", ["count-0123456789ab-x7k2p"])
    False
    """
    if name == run:
        return True
    if re.fullmatch(RUN_ID, name) is None:
        return False
    return any(pod.startswith(name) and _OF_POD.fullmatch(pod, len(name)) for pod in pods)
