"""What Debian's archive gave to a build: it is part of the version, because the archive may give another build more.

The Dockerfiles fix everything but that: the base by its digest, Python's packages by a lock, the sources by their
hashes. Debian's archive has the packages of the day. A build that names a snapshot of the archive (`--build-arg
SNAPSHOT=20261122T000000Z`) has the packages of that time, and its version has the time. Any other build makes the stage
`debian` first, which holds the lists of the packages, and the digest of these lists is in its version as if it were a
build argument.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Final

from launcher.spec.images.definition import Definition

STAGE: Final = "debian"
SNAPSHOT: Final = "SNAPSHOT"  # the build argument that pins the archive
ARGUMENT: Final = "DEBIAN"  # the build argument that carries the digest
LABEL: Final = "slipway.debian"  # where the image keeps it
# Files of the stage: dpkg's lists where the packages are installed and in the image, and what else was downloaded.
LISTS: Final = ("packages", "runtime")
OTHER: Final = "other"
_FIELDS: Final = re.compile(r"^(Package|Version|Architecture|Status): (.*)$", re.MULTILINE)


def open_ended(definition: Definition, arguments: Mapping[str, str]) -> bool:
    """Whether what Debian gives to such a build is known only from the build."""
    stage = re.search(rf"^FROM\s.*\sAS\s+{STAGE}\s*$", definition.text(), re.MULTILINE | re.IGNORECASE)
    return stage is not None and not arguments.get(SNAPSHOT) and ARGUMENT not in arguments


def digest(files: Mapping[str, bytes]) -> str:
    """16 hex digits of the sha256 of what the stage's files name: packages that are installed, with version and
    architecture. The order in which dpkg noted them, and when, does not count."""
    total = hashlib.sha256()
    for name, body in sorted(files.items()):
        lines = _installed(body.decode()) if name in LISTS else [body.decode().strip()]
        total.update("".join(f"{line}\n" for line in [name, *sorted(lines)]).encode())
    return total.hexdigest()[:16]


def _installed(status: str) -> Iterator[str]:
    """`package version architecture` of each package that dpkg's status file says is installed."""
    for paragraph in status.split("\n\n"):
        fields = dict(_FIELDS.findall(paragraph))
        if fields.get("Status") == "install ok installed":
            yield f"{fields['Package']} {fields['Version']} {fields['Architecture']}"


def of_image(labels: Mapping[str, str] | None) -> dict[str, str]:
    """The build argument that an image's labels tell of; empty without one."""
    value = (labels or {}).get(LABEL)
    return {ARGUMENT: value} if value else {}
