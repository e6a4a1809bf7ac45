"""The vendored API documents: which kinds there are, and the strict schema of each. Made by tools/schemas.py."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from launcher.errors import BadInput

FOLDER: Final = Path(__file__).parent
VERSIONS: Final = ("1.33", "1.34", "1.35", "1.36", "1.37")
DEFAULT: Final = "1.34"
# of two files with the same kind, the later counts
CUSTOM: Final = ("jobset-0.10.1", "jobset-0.12.0", "kueue-0.14.0", "kueue-0.19.1", "gitops", "monitoring")


class Schemas(NamedTuple):
    """`kinds`: apiVersion/kind -> name of its definition. `cluster`: those kinds that lie in no namespace. `builtin`:
    those that Kubernetes itself serves. `unchecked`: alpha and beta kinds of Kubernetes, which have no schema here."""

    kinds: dict[str, str]
    definitions: dict[str, dict[str, Any]]
    cluster: frozenset[str]
    builtin: frozenset[str]
    unchecked: frozenset[str]


@cache
def load(version: str = DEFAULT, custom: tuple[str, ...] = CUSTOM) -> Schemas:
    """The kinds of one minor version of Kubernetes, and those of the operators in README.md, `custom`. Raises
    BadInput."""
    if version not in VERSIONS:
        raise BadInput(f"no schemas of Kubernetes {version}; there are: {', '.join(VERSIONS)}")
    builtin = read(f"kubernetes-{version}")
    kinds: dict[str, str] = dict(builtin["kinds"])
    definitions: dict[str, dict[str, Any]] = dict(builtin["$defs"])
    cluster = set(builtin["cluster"])
    for name in custom:
        data = read(name)
        kinds |= data["kinds"]
        definitions |= data["$defs"]
        cluster.update(data["cluster"])
    return Schemas(kinds, definitions, frozenset(cluster), frozenset(builtin["kinds"]), frozenset(builtin["unchecked"]))


def read(name: str) -> dict[str, Any]:
    """One file: source, kinds, cluster, $defs. A file that holds only what differs from another is completed."""
    data: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    if "base" in data:
        gone = set(data["gone"])
        same = {key: schema for key, schema in read(data["base"])["$defs"].items() if key not in gone}
        data["$defs"] = same | data["$defs"]
    return data
