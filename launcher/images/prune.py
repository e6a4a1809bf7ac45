"""Finds the tags in an engine that belong to builds of other sources."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from launcher.images import debian
from launcher.spec.images.definition import Definition

if TYPE_CHECKING:
    from launcher.images.engine import Engine

_VERSION: Final = re.compile(r"[0-9A-Za-z.]+-[0-9a-f]{8}")


def old_tags(engine: Engine, definition: Definition) -> list[str]:
    """The tags (with a registry's name, too) of other versions of this image than the present one and its variants.

    Tags that people made by hand are not included.
    """
    current = {
        definition.version(),
        *(definition.version(None, {"VARIANT": variant}) for variant in definition.variants),
    }
    tags = []
    for image in engine.images(definition.name):
        present = current | {definition.version(None, debian.of_image(image.get("Labels")))}
        for tag in image.get("RepoTags") or ():
            repository, _, version = tag.rpartition(":")
            is_version = repository.rpartition("/")[2] == definition.name and _VERSION.fullmatch(version)
            if is_version and version not in present:
                tags.append(tag)
    return tags
