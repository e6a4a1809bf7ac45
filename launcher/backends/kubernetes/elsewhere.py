"""Objects of runs in namespaces that nobody named.

A job without `kubernetes.namespace` goes to the namespace of the kubeconfig, which is not part of the run: two
kubeconfigs for one cluster can mean two namespaces.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.api import ONLY_METADATA_LIST, ApiRefused
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.objects import Metadata


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
