"""The same measurement with the code of this checkout and with that of another one, which the variable OLD names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def checkouts() -> dict[str, Path]:
    """Their folders, by what a table calls them."""
    old = os.environ.get("OLD", "")
    return ({"before": Path(old)} if old else {}) | {"now": Path(__file__).parents[2]}


def measured(file: str, checkout: Path) -> str:
    """What `python FILE one` prints with the checkout's code."""
    done = subprocess.run(
        [sys.executable, file, "one"],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
