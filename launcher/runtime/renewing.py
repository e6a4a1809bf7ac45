"""python -m launcher.runtime.renewing: replaces the file of a machine's credentials by newer ones, if there are any, so
that a runtime which starts again on this machine has them. It runs as root, in a container of its own: the command
never sees that file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from launcher.files import replace
from launcher.runtime.secrets.credentials import PRIVATE
from launcher.store.renewed import RENEW, newer


def main(private: Path, parameter: str) -> bool:
    """Whether the file was replaced. It is complete at any time."""
    known: dict[str, str] = json.loads(private.read_bytes())
    os.environ.update({name: value for name, value in known.items() if name.startswith("AWS_")})
    found = newer({**known, RENEW: parameter})
    if found:
        replace(private, json.dumps({**known, **found}).encode())
    return bool(found)


if __name__ == "__main__":
    main(Path(os.environ[PRIVATE]), os.environ[RENEW])
