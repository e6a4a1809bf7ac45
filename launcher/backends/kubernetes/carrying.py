"""The runs that objects in a cluster carry, read from the objects: for runs that nobody has written into the store, for
objects in other namespaces, and for objects that Flux keeps in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from launcher.backends.abilities import CarriedRun
from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.api import ONLY_METADATA_LIST, Api, ApiRefused
from launcher.backends.kubernetes.check.carried import inspect_there, runs_of, told
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.objects import CARRIERS, Kind, Metadata, handle
from launcher.backends.kubernetes.watch.snapshot import NAME
from launcher.backends.kubernetes.watch.state_reader import read_objects
from launcher.spec.check.schema import RUN_ID

PARALLEL: Final = 16


def carried_with(connection: Connection, run: str) -> list[CarriedRun]:
    """All runs of the object that carries `run`."""
    carrier = connection.looking.owner(run)
    return [] if carrier is None else list(_read(connection.api, carrier.kind, carrier.value))


def carried(connection: Connection, wanted: Callable[[str], bool], store: str) -> Iterator[CarriedRun]:
    """The wanted runs of all objects that name `store`, in all namespaces where these may be listed, otherwise in the
    connection's own."""
    for kind in connection.looking.kinds():
        space = ""
        try:
            places = _places(connection.api, kind, space, wanted, store)
        except ApiRefused as error:
            if error.status != 403:
                raise
            space = connection.namespace
            places = _places(connection.api, kind, space, wanted, store)
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="carried") as threads:
            values = read_objects(connection.api, kind, space, places, threads)
            for runs in threads.map(lambda value, kind=kind: list(_read(connection.api, kind, value)), values):
                yield from (each for each in runs if wanted(each.run))


def _places(api: Api, kind: Kind, space: str, wanted: Callable[[str], bool], store: str) -> set[tuple[str, str]]:
    """Where the objects with wanted runs are, from lists without the objects' specs: namespace and
    name of each."""
    places = set()
    for page in api.pages(kind.path(space), accept=ONLY_METADATA_LIST, labelSelector=names.SELECTOR):
        for item in page.get("items") or ():
            metadata = msgspec.convert(item.get("metadata") or {}, Metadata, strict=False)
            if names.JOBSET_NAME in metadata.labels or _bare(metadata.annotations.get(names.STORE, "")) != _bare(store):
                continue
            if any(map(wanted, metadata.runs)):
                places.add((metadata.namespace, metadata.name))
    return places


def _bare(url: str) -> str:
    """A store's URL without its settings."""
    return url.partition("?")[0].rstrip("/")


def _read(api: Api, kind: Kind, value: Mapping[str, Any]) -> Iterator[CarriedRun]:
    """The runs of one object, compared with what their jobs render to. Items of a list do not say their kind."""
    value = {**value, "kind": kind.name, "apiVersion": kind.group.removeprefix("/apis/")}
    metadata = msgspec.convert(value["metadata"], Metadata, strict=False)
    inspection = inspect_there(api, value)
    fault = told(kind.name, value, inspection) if inspection.errors else ""
    for run in runs_of(value):
        place = handle(run, NAME, kind, metadata, api.login.context).place
        yield CarriedRun(run, inspection.jobs.get(run), fault, place)


# Objects of runs in namespaces that nobody named.
# A job without `kubernetes.namespace` goes to the namespace of the kubeconfig, which is not part of the run: two
# kubeconfigs for one cluster can mean two namespaces.


def namespaces(connection: Connection, runs: Collection[str]) -> Mapping[str, str]:
    """Run -> the namespace of its object, for runs whose object is in another namespace than the connection's; empty
    where this login may not list the objects of all namespaces. A few requests for any number of runs."""
    wanted = set(runs)
    places: dict[str, str] = {}
    selectors = [names.SELECTOR]
    if len(wanted) == 1:
        selectors = [f"{names.RUN}={next(iter(wanted))}", names.PIPELINE, names.ARRAY]
    try:
        for kind in connection.looking.kinds():
            for selector in selectors:
                for page in connection.api.pages(kind.path(""), accept=ONLY_METADATA_LIST, labelSelector=selector):
                    for item in page.get("items") or ():
                        metadata = msgspec.convert(item.get("metadata") or {}, Metadata, strict=False)
                        if names.JOBSET_NAME not in metadata.labels and metadata.namespace != connection.namespace:
                            places |= dict.fromkeys(wanted & set(metadata.runs), metadata.namespace)
    except ApiRefused as error:
        if error.status != 403:
            raise
    return places


def describe_namespace(run: str, namespace: str, own: str) -> str:
    """A line about a run in another namespace."""
    return (
        f"{run} is in namespace {namespace} of this cluster, and its job names none: this kubeconfig's is {own}; add "
        f"`kubernetes: {{namespace: {namespace}}}` to slipway.yaml, or `kubectl config set-context --current "
        f"--namespace {namespace}`"
    )


# Which Jobs and JobSets Flux keeps in place, by its own lists: the inventory in the status of each Kustomization.
# With `ssa: IfNotPresent`, as k8s/gitops/flux has it, Flux leaves no mark on an object that was there before its file
# was committed; only the inventory names it (kustomize-controller 1.9.5, internal/inventory: what is skipped is
# listed, too).

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
