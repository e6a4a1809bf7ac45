"""Runs on a Kubernetes cluster: Jobs and JobSets, sent by submit or, the very same, applied by a GitOps controller.

names                                  labels, annotations and mount paths that all of these agree by
render, pod, jobset, text, accelerators    what an object looks like: pure
schemas, validate, lint                what can be said against it without a cluster
api                                    requests to the API server
objects                                rendered files and the cluster's objects: kinds, addresses, whose they are
backend                                the Backend of design 8, called by the verbs
creating, checking                     what submit sends, and what it asks beforehand
sight, reasons, endings                what a cluster holds of our runs, and what that means
looking, watch                         what a cluster has, asked once, or kept up to date by a watch for each kind
deleting                               what cancel and reap end
logs, entering, forward                live output, commands and ports of a run's pods
"""

from __future__ import annotations

from collections.abc import Mapping

from launcher.backends.base import Backend


def make(options: Mapping[str, object]) -> Backend:
    """`options`: the profile's `kubernetes` block, and over it the job's own."""
    from launcher.backends.kubernetes.backend import KubernetesBackend

    return KubernetesBackend(options)
