"""Makes the texts of a local cluster. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

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


class ClusterContents(msgspec.Struct, frozen=True):
    """What a cluster contains: image name -> reference with a digest; whether Kueue and its queue are installed;
    whether JobSet is."""

    images: dict[str, str] = {}
    queues: bool = False
    jobset: bool = False


class Room(NamedTuple):
    """CPUs of the nodes, and how many of them no pod has asked for."""

    cpus: float
    free: float


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


def next_steps(
    place: ClusterFiles, profile_path: str, written: bool, text: str, contents: ClusterContents, room: Room | None
) -> str:
    """What to type now. `written`: whether the user's profile was; `text`: what it would contain."""
    lines = [f"the cluster {place.name} is up. Next:", "", f"  source {shlex.quote(str(place.environment))}"]
    if not written:
        lines += [
            f"  # {profile_path} is yours; put this into it:",
            *(f"  #   {line}" for line in text.splitlines()[1:]),
        ]
    if REAPER_IMAGE not in contents.images:
        lines += [
            f"  launcher images build {REAPER_IMAGE} && "
            f"launcher cluster up --name {place.name} --image {REAPER_IMAGE} --jobset"
        ]
    else:
        smaller = smaller_request(room) or ""
        example = "examples/login" if contents.jobset else "examples/count/job.yaml"
        lines += [f"  launcher submit {example} --backend kubernetes{smaller} --follow"]
        if not contents.jobset:
            lines += [
                "  # for roles, several ranks and pipelines, examples/login among them:",
                f"  launcher cluster up --name {place.name} --jobset",
            ]
    if room is not None:
        waits = (
            "A job that asks for more waits."
            if smaller_request(room) is not None
            else "Jobs wait until there are more."
        )
        lines += ["", f"{room.free:.2f} of {room.cpus:g} CPUs are free. {waits}"]
    return "\n".join(lines)


def smaller_request(room: Room | None) -> str | None:
    """The option with which two stages of an example fit: a rank asks for one CPU unless its job says less. None: no
    two fit.

    >>> smaller_request(Room(2, 0.6)), smaller_request(Room(4, 3.05)), smaller_request(Room(2, 0.0))
    (' --set +resources.cpus=0.25', '', None)
    """
    if room is None or room.free >= 2:
        return ""
    fits = next((cpus for cpus in (0.5, 0.25, 0.1, 0.05, 0.01) if 2 * cpus <= room.free), None)
    return None if fits is None else f" --set +resources.cpus={fits:g}"  # +: the examples leave it out


def room_of(nodes: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> Room:
    """What the requests of the pods that are not over leave of the nodes. Init containers run before the others, so the
    larger request of both counts."""
    cpus = sum(cpu_of(node["status"]["allocatable"].get("cpu", "0")) for node in nodes)
    asked = 0.0
    for pod in pods:
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        spec = pod["spec"]
        asked += max(
            sum(_requested(each) for each in spec.get("containers") or ()),
            max((_requested(each) for each in spec.get("initContainers") or ()), default=0.0),
        )
    return Room(cpus, max(0.0, round(cpus - asked, 6)))


def _requested(container: Mapping[str, Any]) -> float:
    return cpu_of(str(((container.get("resources") or {}).get("requests") or {}).get("cpu") or "0"))


def cpu_of(quantity: str) -> float:
    """CPUs of a quantity as the API server writes it.

    >>> cpu_of("250m"), cpu_of("2")
    (0.25, 2.0)
    """
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)
