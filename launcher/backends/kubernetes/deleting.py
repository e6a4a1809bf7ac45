"""Deletes runs from a cluster. cancel.json was written before, so a pod that is created again starts no command."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from launcher.backends.base import Handle
from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.api import Api, ApiRefused
from launcher.backends.kubernetes.objects import CARRIERS, CONFIG_MAP, POD, POD_GROUP, Kind, Metadata
from launcher.backends.kubernetes.watch import reasons
from launcher.backends.kubernetes.watch.snapshot import Owner, Snapshot, index
from launcher.backends.kubernetes.watch.state_reader import StateReader

PARALLEL: Final = 32


def cancel(api: Api, handles: Collection[Handle], namespace: str) -> None:
    """Deletes the objects and what they own. Where an object also carries other runs, only the pods of these runs are
    deleted: their runtimes find cancel.json whenever they start again. `namespace`: for handles that name none."""
    cancelled = {handle.run for handle in handles}

    def end(handle: Handle) -> None:
        _cancel(StateReader(api, handle.place.get("namespace") or namespace), handle, cancelled)

    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="cancel") as threads:
        for _ in threads.map(end, handles):
            pass


def _cancel(looking: StateReader, handle: Handle, wanted: set[str]) -> None:
    owner = looking.owner(handle.run)
    if owner is None or (handle.place.get("uid") or owner.metadata.uid) != owner.metadata.uid:
        return  # deleted, or replaced by a new object
    if not any(unfinished(owner, other) for other in owner.metadata.runs.keys() - wanted):
        _delete(looking.api, owner.kind, owner.metadata)
        for kind, name in owned(owner):
            _delete(looking.api, kind, Metadata(name=name, namespace=owner.metadata.namespace))
        return
    snapshot = Snapshot(looking.context)
    looking.fill(snapshot, owner, handle.run)
    for pod in snapshot.members(owner, handle.run):
        if (pod.get("status") or {}).get("phase") in ("Pending", "Running"):
            _delete(looking.api, POD, msgspec.convert(pod["metadata"], Metadata, strict=False))


def _delete(api: Api, kind: Kind, metadata: Metadata) -> None:
    options: dict[str, object] = {"propagationPolicy": "Foreground" if kind in CARRIERS else "Background"}
    if metadata.uid:
        options["preconditions"] = {"uid": metadata.uid}
    try:
        api.request("DELETE", kind.path(metadata.namespace, metadata.name), body=msgspec.json.encode(options))
    except ApiRefused as error:
        # without the right to delete pods, their runtimes end by themselves: they find cancel.json at the next
        # heartbeat
        if error.status not in (404, 409) and not (error.status == 403 and kind not in CARRIERS):
            raise


def unfinished(owner: Owner, run: str) -> bool:
    if names.ARRAY in owner.metadata.labels:
        return reasons.index_outcome(owner.value, index(owner.metadata, run)) is None
    return reasons.outcome(owner.value, run) is None


def owned(owner: Owner) -> list[tuple[Kind, str]]:
    """The ConfigMaps and PodGroups of an object's pods. Those that we create belong to one object only."""
    spec = owner.value.get("spec") or {}
    templates = [spec.get("template") or {}]
    for each in spec.get("replicatedJobs") or ():
        templates.append(((each.get("template") or {}).get("spec") or {}).get("template") or {})
    volumes = [volume for each in templates for volume in (each.get("spec") or {}).get("volumes") or ()]
    sources = [*volumes, *(each for volume in volumes for each in (volume.get("projected") or {}).get("sources") or ())]
    maps = {str(each["configMap"].get("name")) for each in sources if each.get("configMap")}
    labels = [(each.get("metadata") or {}).get("labels") or {} for each in templates]
    groups = {str(each[names.POD_GROUP]) for each in labels if names.POD_GROUP in each}
    ours = groups & owner.metadata.runs.keys()  # another may be somebody's own, named by a patch
    return [*((CONFIG_MAP, name) for name in sorted(maps)), *((POD_GROUP, name) for name in sorted(ours))]
