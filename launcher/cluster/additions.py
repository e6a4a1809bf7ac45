"""Controllers that `cluster up` installs from their projects' releases."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from launcher.cluster import tools
from launcher.cluster.files import ClusterFiles
from launcher.errors import BadInput


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
# a controller's release asks for half a CPU, which on a laptop of two would be most of what is free
CPU: Final = "50m"


def source(name: str, manifests: Path | None) -> str:
    """Where an addition's manifests are: a URL, or a file in the folder that the user named. Raises BadInput."""
    added = ADDITIONS[name]
    if manifests is None:
        return added.url(name)
    path = manifests / f"{name}-{added.version}.yaml"
    if not path.is_file():
        raise BadInput(f"--manifests {manifests}: {path.name} is missing; it is {added.url(name)}")
    return str(path)


def install(place: ClusterFiles, manifests: str) -> None:
    """Applies a release's manifests, fitted to a cluster of one machine. Raises Unreachable."""
    # kubectl reads files and URLs, and prints a document for each object
    read = [*place.kubectl, "create", "--dry-run=client", "--validate=false", "-o", "json", "-f", manifests]
    objects = fitted(documents(tools.run(read)))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    tools.run([*place.kubectl, "apply", "--server-side", "--force-conflicts", "-f", "-"], text=text)


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a text with one JSON document after another.

    >>> documents('{"kind": "A"}\\n{"kind": "B"}\\n')
    [{'kind': 'A'}, {'kind': 'B'}]
    """
    decoder, objects = json.JSONDecoder(), []
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        objects.append(value)
        text = text[end:].lstrip()
    return objects


def fitted(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same objects; containers of Deployments ask for little CPU and take an image that is in the node already."""
    result = []
    for item in objects:
        if item["kind"] == "Deployment":
            for container in item["spec"]["template"]["spec"]["containers"]:
                container["imagePullPolicy"] = "IfNotPresent"
                container.setdefault("resources", {}).setdefault("requests", {})["cpu"] = CPU
        result.append(item)
    return result
