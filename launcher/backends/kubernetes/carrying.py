"""The runs that objects in a cluster carry, read from the objects: for runs that nobody has written into the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from launcher.backends.base import CarriedRun
from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.api import ONLY_METADATA_LIST, Api, ApiRefused
from launcher.backends.kubernetes.compare.carried import runs_of
from launcher.backends.kubernetes.compare.there import inspect_there, told
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.objects import Kind, Metadata, handle
from launcher.backends.kubernetes.watch.snapshot import NAME
from launcher.backends.kubernetes.watch.state_reader import read_objects

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
