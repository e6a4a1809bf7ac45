"""Commands and ports of a run's pods: kubectl where it is, otherwise the Python client's websocket."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launcher.backends.kubernetes import names

if TYPE_CHECKING:
    from launcher.backends.kubernetes.backend import KubernetesBackend

MODULE = "launcher.backends.kubernetes.forward"


def execute(backend: KubernetesBackend, run: str, member: str, command: Sequence[str], *, tty: bool) -> list[str]:
    """The argv that runs a command in a member's container. Raises NotFound when it has none that runs."""
    pod = backend.pod_of(run, member)["metadata"]
    kubectl = _kubectl(backend)
    if kubectl:
        how = ["-i", "-t"] if tty else ["-i"]
        return [*kubectl, "exec", *how, "-n", pod["namespace"], pod["name"], "-c", names.CONTAINER, "--", *command]
    how = ["--tty"] if tty else []
    return [*_ours(backend), "exec", *how, pod["namespace"], pod["name"], "--", *command]


def forward(backend: KubernetesBackend, run: str, member: str, ports: Sequence[tuple[int, int]]) -> list[str]:
    """The argv that brings ports of a member to this machine; `ports`: (here, there)."""
    pod = backend.pod_of(run, member)["metadata"]
    pairs = [f"{here}:{there}" for here, there in ports]
    kubectl = _kubectl(backend)
    if kubectl:
        return [*kubectl, "port-forward", "-n", pod["namespace"], f"pod/{pod['name']}", *pairs]
    return [*_ours(backend), "ports", pod["namespace"], pod["name"], *pairs]


def _kubectl(backend: KubernetesBackend) -> list[str]:
    """It reads $KUBECONFIG as we do; the context is said, because another's is the default's."""
    if shutil.which("kubectl") is None:
        return []
    context = backend.login.context
    return ["kubectl", *(["--context", context] if context else [])]


def _ours(backend: KubernetesBackend) -> list[str]:
    context = backend.login.context
    return [sys.executable, "-m", MODULE, *(["--context", context] if context else [])]
