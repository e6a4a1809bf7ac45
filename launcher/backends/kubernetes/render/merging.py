"""Strategic merge of a patch into a pod template, as `kubectl patch --type strategic` does it.

Mappings are merged key by key; null removes a field. A list whose items Kubernetes identifies by a key (KEYS) is merged
item by item; any other list is replaced. Directives (`$patch`, `$retainKeys`, ...) are not supported: a caller refuses
them. The order of a merged list follows k8s.io/apimachinery, pkg/util/strategicpatch (`mergeSortedSlice`): items of the
patch keep their order, and an item that only the object has comes before the first item of the patch that followed it
in the object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

# path within a pod template, [] for an item of any merged list -> the key of its items: the `patchMergeKey` tags of
# PodSpec, Container and ObjectMeta (k8s.io/api, core/v1/types.go), which are the same from 1.30 to 1.37
_CONTAINERS: Final = ("spec.containers", "spec.initContainers")
KEYS: Final[Mapping[str, str]] = {
    **dict.fromkeys((*_CONTAINERS, "spec.volumes", "spec.imagePullSecrets", "spec.schedulingGates"), "name"),
    "spec.resourceClaims": "name",
    "spec.hostAliases": "ip",
    "spec.topologySpreadConstraints": "topologyKey",
    **{f"{part}[].env": "name" for part in _CONTAINERS},
    **{f"{part}[].ports": "containerPort" for part in _CONTAINERS},
    **{f"{part}[].volumeMounts": "mountPath" for part in _CONTAINERS},
    **{f"{part}[].volumeDevices": "devicePath" for part in _CONTAINERS},
}


def below(path: str, key: str) -> str:
    """The path of a field of a mapping."""
    return f"{path}.{key}" if path else key


def merge(base: Any, patch: Any, path: str = "") -> Any:
    """The base with the patch merged into it; neither is changed. A list of the patch that is merged holds mappings
    with its key, each key once."""
    if type(patch) is dict:
        merged = dict(base) if type(base) is dict else {}
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = merge(merged.get(key), value, below(path, key))
        return merged
    if type(patch) is list:
        if (key := KEYS.get(path)) is not None:
            return _items(base if type(base) is list else [], patch, key, path)
        return [merge(None, item, f"{path}[]") for item in patch]
    return patch


def _items(base: Sequence[Any], patch: Sequence[Any], key: str, path: str) -> list[Any]:
    """A list that is merged item by item."""
    there = {item[key]: item for item in base}
    order = {identity: number for number, identity in enumerate(there)}
    theirs = [merge(there.get(item[key]), item, f"{path}[]") for item in patch]
    changed = {item[key] for item in patch}
    ours = [item for item in base if item[key] not in changed]
    merged: list[Any] = []
    while ours and theirs:
        follows = order.get(theirs[0][key])
        merged.append((ours if follows is not None and order[ours[0][key]] < follows else theirs).pop(0))
    return [*merged, *ours, *theirs]
