"""Programs that tools/build.sh builds from Go modules."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

from tests.support.needs import lacking

ROOT = Path(__file__).resolve().parents[2]


def built(*names: str) -> Path:
    """The folder that has these programs, built where they are missing or of another pin (minutes, once)."""
    tools = ROOT / ".tools"
    tools.mkdir(exist_ok=True)
    environment = dict(os.environ)
    environment.pop("XDG_CACHE_HOME", None)  # a test's own, which would have Go compile everything anew
    with (tools / "build.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        subprocess.run(["sh", ROOT / "tools/build.sh", *names], env=environment, check=True)
    if not all((tools / "bin" / name).exists() for name in names):
        lacking("go")
    return tools / "bin"
