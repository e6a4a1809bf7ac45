"""`launcher images verify`: checks that an image matches these sources, and that jobs get its digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import NotFound
from launcher.images import debian
from launcher.images.checks import current
from launcher.spec.images.catalogue import CatalogueEntry
from launcher.spec.images.definition import Definition, select

if TYPE_CHECKING:
    from launcher.images.engine import Engine


def pushed_entry(entries: Mapping[str, CatalogueEntry], name: str) -> CatalogueEntry:
    """The catalogue's entry of an image. Raises NotFound for an image that was never pushed."""
    if name not in entries:
        raise NotFound(
            f"{name} is not in the catalogue: nobody pushed it (`launcher images build {name} --push REGISTRY`)"
        )
    return entries[name]


def pushed(root: Path, engine: Engine, name: str, entry: CatalogueEntry) -> tuple[bool, str]:
    """(whether it matches, one line): compares the catalogue's image with the registry and the sources.

    Raises NotFound when the registry has no image under the entry's tag, Unreachable.
    """
    repository, _, digest = entry.reference.partition("@")
    registry_digest = engine.digest(f"{repository}:{entry.version}")
    if registry_digest != digest:
        return (
            False,
            f"wrong digest: the catalogue has {entry.reference}, the registry {registry_digest} as {entry.version}",
        )
    if entry.version != (now := current(Definition(name, root), entry)):
        return False, f"stale: the catalogue has {name} {entry.version}; the sources here make {now}"
    return True, f"{entry.reference} is {name} {entry.version}, as the sources here make it"


def held(root: Path, engine: Engine, reference: str, entries: Mapping[str, CatalogueEntry]) -> tuple[bool, str]:
    """The same for an image in the engine, whoever built or pulled it. Raises NotFound, Unreachable."""
    details = engine.inspect(reference)
    labels = details["Config"].get("Labels") or {}
    title, version = labels.get("org.opencontainers.image.title"), labels.get("org.opencontainers.image.version")
    if not title or not version:
        return False, f"{reference} carries no labels of Slipway's images"
    (definition,) = select(root, [title])
    entry = entries.get(title)
    now = definition.version(None, debian.of_image(labels))
    if version != now and (entry is None or version != current(definition, entry)):
        return False, f"{reference} is {title} {version}; the sources here make {now}"
    if entry is not None and entry.version == version:
        repository = entry.reference.partition("@")[0]
        digests = [known for known in details.get("RepoDigests") or () if known.partition("@")[0] == repository]
        if digests and entry.reference not in digests:
            return False, f"wrong digest: {reference} is {digests[0]}, the catalogue has {entry.reference}"
    return True, f"{reference} is {title} {version}, as the sources here make it; {details['Id']}"
