"""docker-bake.json, for those who build with buildx: made from the same definitions, and tested to be equal.

`python -m launcher.images.bake` writes images/docker-bake.json; `docker buildx bake -f` reads it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from launcher.images.definition import DOCKERFILE, FOLDER, project_root, select

FILE: Final = "docker-bake.json"


def bake(root: Path) -> str:
    """The file's text. It names no version: `launcher images list` prints them, and sources change more often."""
    images = select(root, [])
    targets = {
        one.name: {
            "context": ".",
            "dockerfile": f"{FOLDER}/{one.name}/{DOCKERFILE}",
            "tags": [f"{one.name}:latest"],
            "args": {"BASE": one.base},
        }
        for one in images
    }
    return json.dumps({"group": {"default": {"targets": list(targets)}}, "target": targets}, indent=2) + "\n"


def main() -> int:
    root = project_root(Path.cwd())
    (root / FOLDER / FILE).write_text(bake(root), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
