"""The vendored API documents: which kinds there are, and the strict schema of each. Made by tools/schemas.py."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from launcher.errors import BadInput

FOLDER: Final = Path(__file__).parent
VERSIONS: Final = ("1.33", "1.34", "1.35")
DEFAULT: Final = "1.34"
CUSTOM: Final = ("jobset-0.10.1", "kueue-0.14.0", "gitops", "monitoring")


class Schemas(NamedTuple):
    """`kinds`: apiVersion/kind -> name of its definition. `cluster`: those kinds that lie in no namespace."""

    kinds: dict[str, str]
    definitions: dict[str, dict[str, Any]]
    cluster: frozenset[str]


@cache
def load(version: str = DEFAULT) -> Schemas:
    """The kinds of one minor version of Kubernetes, and the operators' of README.md. Raises BadInput."""
    if version not in VERSIONS:
        raise BadInput(f"no schemas of Kubernetes {version}; there are: {', '.join(VERSIONS)}")
    kinds: dict[str, str] = {}
    definitions: dict[str, dict[str, Any]] = {}
    cluster: set[str] = set()
    for name in (f"kubernetes-{version}", *CUSTOM):
        data = read(name)
        kinds |= data["kinds"]
        definitions |= data["$defs"]
        cluster.update(data["cluster"])
    return Schemas(kinds, definitions, frozenset(cluster))


def read(name: str) -> dict[str, Any]:
    """One file as it lies there: source, kinds, cluster, $defs."""
    data: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return data
