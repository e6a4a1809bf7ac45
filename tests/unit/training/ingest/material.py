"""What the tests of the importers share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def report(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    return found


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
