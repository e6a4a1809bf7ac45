"""A distribution with a backend of its own, as somebody else would install it beside the launcher."""

from __future__ import annotations

import shutil
from pathlib import Path

NAME = "elsewhere"
HERE = Path(__file__).parent


def install(folder: Path, *, name: str = NAME, target: str = "slipway_elsewhere:TRAITS") -> Path:
    """Installs it into a folder that stands on Python's path afterwards, as `pip install --target` does."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in HERE.glob("slipway_*.py"):
        shutil.copy(module, folder)
    about = folder / "slipway_elsewhere-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slipway-elsewhere\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[slipway.backends]\n{name} = {target}\n")
    return folder
