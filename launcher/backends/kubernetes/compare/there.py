"""Compares objects in a cluster with what the jobs in them render to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from launcher.backends.kubernetes.api import Api, ApiRefused
from launcher.backends.kubernetes.check.validate import templates
from launcher.backends.kubernetes.compare.carried import ObjectInspection, config_maps, gang, inspect, runs_of
from launcher.backends.kubernetes.objects import CONFIG_MAP, POD_GROUP
from launcher.errors import Conflict
from launcher.spec.values.source import dotted

_SHOWN: Final = 3  # differences in a message


def inspect_there(api: Api, value: Mapping[str, Any]) -> ObjectInspection:
    """Inspects a Job or JobSet as the API server gave it. Reads its ConfigMaps, those whose names begin with its own,
    and the PodGroups of its runs; one that may not be read counts as missing."""
    metadata = value["metadata"]
    names_of = {name for _, template in templates(value) for name in config_maps(template.get("spec") or {})}
    # what is not ours is not read: the comparison of the volumes and labels says so
    wanted = [(CONFIG_MAP, name) for name in sorted(names_of) if name.startswith(f"{metadata['name']}-")]
    groups = {gang(template) for _, template in templates(value)}
    wanted += [(POD_GROUP, run) for run in runs_of(value) if run in groups]
    maps: dict[str, Mapping[str, Any]] = {}
    for kind, name in wanted:
        try:
            answer = api.get(kind.path(metadata["namespace"], name))
        except ApiRefused as error:
            if error.status != 403:
                raise
            continue
        if answer is not None:
            version = kind.group.removeprefix("/apis/").removeprefix("/api/")
            maps[name] = {"apiVersion": version, "kind": kind.name, **answer.json()}
    return inspect({"apiVersion": None, "kind": None, **value}, maps, served=True)


def refuse_changed(api: Api, value: Mapping[str, Any]) -> None:
    """Raises Conflict when an object in a cluster runs something else than the jobs in it say."""
    inspection = inspect_there(api, value)
    if inspection.errors:
        raise Conflict(f"{told(str(value.get('kind')), value, inspection)} and submit again")


def refuse_results(api: Api, value: Mapping[str, Any]) -> None:
    """Raises Conflict when an object whose runs have ended ran something else than the jobs in it say. Their results in
    the store stay after the object is deleted, so they go first, and the jobs are computed under other names."""
    inspection = inspect_there(api, value)
    if inspection.errors:
        runs = " ".join(runs_of(value))
        raise Conflict(
            f"{told(str(value.get('kind')), value, inspection, ended=True)}, but first what it wrote "
            f"(`launcher rm {runs} --yes`): "
            "its results do not count. `launcher submit --fresh 1` computes the job once more"
        )


def told(kind: str, value: Mapping[str, Any], inspection: ObjectInspection, *, ended: bool = False) -> str:
    """What is wrong with an object, in one sentence that ends with the command that deletes it. `ended`: its runs
    have."""
    metadata = value["metadata"]
    said = [f"{dotted(fault.route)}: {fault.message}" if fault.route else fault.message for fault in inspection.errors]
    more = f"; and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    command = f"kubectl delete {kind.lower()} {metadata['name']} -n {metadata['namespace']}"
    todo = f"delete it ({command})" if ended else f"undo that, or delete the object, which ends its runs ({command})"
    return (
        f"{kind} {metadata['name']} in namespace {metadata['namespace']} does not run what its job says: "
        f"{'; '.join(said[:_SHOWN])}{more}. Find out who changed it; {todo}"
    )
