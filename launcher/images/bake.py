"""Writes docker-bake.json, for users of buildx, from the same definitions; a test compares the two.

`python -m launcher.images.bake` writes images/docker-bake.json, and `launcher images check` tells whether it is up to
date. `docker buildx bake -f images/docker-bake.json` reads it, from the project's folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from launcher.spec.images.definition import DOCKERFILE, EPOCH, FOLDER, Definition, project_root, select

FILE: Final = "docker-bake.json"


def bake(root: Path) -> str:
    """The file's text: a target for each image, and one for each of its variants, which are in no group.

    It contains no versions, because sources change more often; `launcher images list` prints them.
    """
    images = select(root, [])
    targets = {image.name: _target(image, image.name, {}) for image in images}
    for image in images:
        for variant in image.variants:
            name = f"{image.name}-{variant}"
            targets[name] = _target(image, name, {"VARIANT": variant})
    default = {"targets": [image.name for image in images]}
    return json.dumps({"group": {"default": default}, "target": targets}, indent=2) + "\n"


def _target(definition: Definition, name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    return {
        "context": ".",
        "dockerfile": f"{FOLDER}/{definition.name}/{DOCKERFILE}",
        "tags": [f"{name}:latest"],
        "args": {"BASE": definition.base, EPOCH: str(definition.epoch), **arguments},
    }


def differs(root: Path) -> str | None:
    """What is wrong with the present file; None when it matches the definitions."""
    file = root / FOLDER / FILE
    if file.is_file() and file.read_text(encoding="utf-8") == bake(root):
        return None
    return f"{FOLDER}/{FILE} is not what the definitions make: `python -m launcher.images.bake`"


def main() -> int:
    root = project_root(Path.cwd())
    (root / FOLDER / FILE).write_text(bake(root), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
