"""Runs on a Kubernetes cluster: Jobs and JobSets, sent by submit or applied unchanged by a GitOps controller.

names, objects, schemas   names of labels and mounts; kinds and addresses of objects; the API's schemas
api, identity, connection  requests to the API server; which cluster it is; the cluster and namespace of a job
backend                   the Backend that the verbs call; creating, deleting: what submit creates and cancel deletes
render/                   what an object looks like: pure
check/                    judges objects: does a cluster accept one, does it run what its jobs say; folders in Git
watch/                    the state of our runs in a cluster, and what it means
enter/                    live output, commands and ports of a run's pods
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.backends.base import Backend


def make(options: Mapping[str, object]) -> Backend:
    """`options`: the profile's `kubernetes` block, overridden by the job's own."""
    from launcher.backends.kubernetes.backend import KubernetesBackend

    return KubernetesBackend(options)
