"""The context of a kubeconfig: which cluster, as which user. Of several files the first to name a thing counts, as for
kubectl."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from launcher.errors import BadInput

# fields that name files: relative to the folder of the kubeconfig
CLUSTER_FILES: Final = ("certificate-authority",)
USER_FILES: Final = ("client-certificate", "client-key", "tokenFile")


@dataclass(frozen=True)
class KubeContext:
    """`cluster` and `user` are the entries of the kubeconfig, their paths made absolute; `user_file`: the kubeconfig
    that has the user."""

    name: str
    namespace: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    user_name: str
    user_file: Path


class _Entries(dict[str, tuple[Any, Path]]):
    """Name -> (entry, the file that has it)."""

    def add(self, config: Mapping[str, Any], kind: str, key: str, path: Path) -> None:
        for each in config.get(kind) or ():
            self.setdefault(each["name"], (each.get(key) or {}, path))


def read(kubeconfigs: Sequence[str], wanted: str | None) -> KubeContext:
    """The context `wanted`, or the current one. Raises BadInput for a context that is not there; ValueError, TypeError,
    AttributeError, LookupError, OSError and yaml.YAMLError for files that are no kubeconfigs."""
    import yaml

    clusters, users, contexts, current = _Entries(), _Entries(), _Entries(), ""
    for name in kubeconfigs:
        path = Path(name).absolute()
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        if config is None:  # an empty file beside others
            continue
        if not isinstance(config, dict):
            raise ValueError("a mapping with clusters, users and contexts is needed")
        clusters.add(config, "clusters", "cluster", path)
        users.add(config, "users", "user", path)
        contexts.add(config, "contexts", "context", path)
        current = current or config.get("current-context") or ""
    joined = os.pathsep.join(kubeconfigs)
    listed = ", ".join(sorted(contexts)) or "none"
    if wanted is not None and wanted not in contexts:
        raise BadInput(f"no context `{wanted}` in {joined}; there is: {listed}")
    active = current if wanted is None else wanted
    if active not in contexts:
        raise ValueError(f"its current-context is `{active}`; there is: {listed}")
    context = contexts[active][0]
    cluster, user = context.get("cluster") or "", context.get("user") or ""
    if cluster not in clusters:
        raise ValueError(f"context `{active}` names the cluster `{cluster}`, which is not there")
    entry, user_file = users.get(user, ({}, Path()))  # without one, requests carry no login
    return KubeContext(
        name=str(active),
        namespace=str(context.get("namespace") or "default"),
        cluster=_absolute(*clusters[cluster], CLUSTER_FILES),
        user=_absolute(_with_program(entry, user_file), user_file, USER_FILES),
        user_name=str(user),
        user_file=user_file,
    )


def _absolute(entry: Mapping[str, Any], path: Path, fields: Sequence[str]) -> dict[str, Any]:
    return {key: str(path.parent / value) if key in fields and value else value for key, value in entry.items()}


def _with_program(user: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The login program: with a folder in its name it lies beside the kubeconfig, without one on the PATH."""
    program = user.get("exec")
    command = program.get("command") if isinstance(program, dict) else None
    if not isinstance(command, str) or os.sep not in command:
        return user
    return {**user, "exec": {**user["exec"], "command": str(path.parent / command)}}
