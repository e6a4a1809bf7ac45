"""python -m launcher.runtime: the entrypoint of every image."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

from launcher.runtime.run import main


def adopt_private(environ: MutableMapping[str, str]) -> None:
    """Credentials and secrets that came in a file, so that no `docker inspect` shows them."""
    if path := environ.pop("SLIPWAY_PRIVATE", None):
        import json
        from pathlib import Path

        environ.update(json.loads(Path(path).read_bytes()))


if __name__ == "__main__":
    adopt_private(os.environ)
    code = main(os.environ)
    sys.stdout.flush()
    os._exit(code)  # threads that hang in the network must not hold the container
