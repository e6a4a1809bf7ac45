"""Makes the texts of a local cluster. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from launcher.cluster.files import ClusterFiles

NAMESPACE: Final = "slipway"
SYSTEM: Final = "slipway-system"  # the reaper's
STORE_NAMESPACE: Final = "slipway-store"
SECRET: Final = "slipway-store"
STORE_IMAGE: Final = "slipway.local/versitygw:1.8.0"
STORE_URL: Final = "s3://slipway/agents"
INSIDE: Final = "http://store.slipway-store.svc.cluster.local:7070"
PORT: Final = 7070  # the port of this machine on which k8s/kind/cluster.yaml exposes the store
OUTSIDE: Final = f"http://127.0.0.1:{PORT}"
REGION: Final = "us-east-1"
REAPER_IMAGE: Final = "slipway-cpu"
WRITTEN: Final = "# written by `launcher cluster up`, which writes it again as long as this line is here"


class Addition(NamedTuple):
    """A controller that is installed from its project's release: what to apply, and which Deployments must become
    ready."""

    version: str
    namespace: str
    deployment: str

    def url(self, project: str) -> str:
        return f"https://github.com/kubernetes-sigs/{project}/releases/download/v{self.version}/manifests.yaml"


# the versions that the tests use and whose schemas `launcher lint` has
ADDITIONS: Final = {
    "jobset": Addition("0.10.1", "jobset-system", "jobset-controller-manager"),
    "kueue": Addition("0.14.0", "kueue-system", "kueue-controller-manager"),
}


class ClusterContents(msgspec.Struct, frozen=True):
    """What a cluster contains: image name -> reference with a digest; whether Kueue and its queue are installed."""

    images: dict[str, str] = {}
    queues: bool = False


class StoreCredentials(NamedTuple):
    """The local store's only user."""

    id: str
    secret: str


def overlay(bases: Sequence[str], images: Mapping[str, str]) -> str:
    """The kustomization to apply: the tree's, plus the settings of this cluster. `bases` are relative paths.

    `images`: name in the catalogue -> reference with a digest. The reaper runs only if its image was loaded.
    """
    lines = [
        WRITTEN,
        "apiVersion: kustomize.config.k8s.io/v1beta1",
        "kind: Kustomization",
        f"resources: {json.dumps(list(bases))}",
        "patches:",
        "  - target: {kind: ConfigMap, name: slipway-settings}",
        "    patch: |-",
        f"      - {{op: replace, path: /data/SLIPWAY_STORE, value: {json.dumps(STORE_URL)}}}",
    ]
    if REAPER_IMAGE in images:
        name, _, digest = images[REAPER_IMAGE].partition("@")
        lines += [
            "  - target: {kind: CronJob, name: slipway-reaper}",
            "    patch: |-",
            "      - {op: replace, path: /spec/suspend, value: false}",
            "images:",
            f"  - {{name: {REAPER_IMAGE}, newName: {json.dumps(name)}, digest: {json.dumps(digest)}}}",
        ]
    return "\n".join(lines) + "\n"


def secrets(keys: StoreCredentials) -> str:
    """The same Secret for the server, jobs (`kubernetes.store_secret`) and the reaper, as JSON for `kubectl apply`."""
    data = {
        "AWS_ACCESS_KEY_ID": keys.id,
        "AWS_SECRET_ACCESS_KEY": keys.secret,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": INSIDE,
        "AWS_ALLOW_HTTP": "true",
    }
    items = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": namespace},
            "type": "Opaque",
            "stringData": data,
        }
        for namespace in (STORE_NAMESPACE, NAMESPACE, SYSTEM)
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def environment(place: ClusterFiles, keys: StoreCredentials) -> str:
    """The file for the shell's `source`: how this machine reaches the cluster and its store."""
    values = {
        "KUBECONFIG": str(place.kubeconfig),
        "SLIPWAY_PROFILE": place.context,
        "SLIPWAY_BACKEND": "kubernetes",
        "SLIPWAY_STORE": STORE_URL,
        "AWS_ENDPOINT_URL": OUTSIDE,
        "AWS_ACCESS_KEY_ID": keys.id,
        "AWS_SECRET_ACCESS_KEY": keys.secret,
        "AWS_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
    }
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def profile(place: ClusterFiles, images: Mapping[str, str], queue: bool) -> str:
    """A slipway.yaml with the profile that the environment file names."""
    # no `context`: it would be part of every job and mean nothing to the reaper inside the cluster; the KUBECONFIG of
    # the environment file has only this cluster
    block = {"namespace": NAMESPACE, "store_secret": SECRET}
    block |= {"queue": NAMESPACE} if queue else {}
    lines = [
        WRITTEN,
        "profiles:",
        f"  {place.context}:",
        "    backend: kubernetes",
        f"    store: {STORE_URL}",
        f"    kubernetes: {{{', '.join(f'{key}: {value}' for key, value in block.items())}}}",
    ]
    if images:
        lines += ["    images:", *(f"      {name}: {reference}" for name, reference in sorted(images.items()))]
    return "\n".join(lines) + "\n"


def next_steps(place: ClusterFiles, profile_path: str, written: bool, text: str, images: Sequence[str]) -> str:
    lines = [f"the cluster {place.name} is up. Next:", "", f"  source {shlex.quote(str(place.environment))}"]
    if not written:
        lines += [
            f"  # {profile_path} is yours; put this into it:",
            *(f"  #   {line}" for line in text.splitlines()[1:]),
        ]
    if REAPER_IMAGE in images:
        lines += ["  launcher submit examples/login --backend kubernetes --follow"]
    else:
        lines += [
            f"  launcher images build {REAPER_IMAGE} && launcher cluster up --name {place.name} --image {REAPER_IMAGE}"
        ]
    return "\n".join(lines)
