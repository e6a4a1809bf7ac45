"""A machine with an old NVIDIA driver: what a process is started with, so that it finds the driver's file here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.engine import ROOT

RELEASE: Final = "570.86.15"
CUSTOMISED: Final = """\
from pathlib import Path
from launcher.runtime.process.driver import too_old
too_old.__defaults__ = (Path({file!r}),)
"""


def environment(folder: Path, *path: str) -> dict[str, str]:
    """The variables of such a process in an image that asks for 580; `path` is for its PYTHONPATH."""
    file = folder / "driver" / "version"
    file.parent.mkdir()
    file.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {RELEASE}  Thu Jan 16 18:30:39 UTC 2025\n")
    (file.parent / "sitecustomize.py").write_text(CUSTOMISED.format(file=str(file)))
    return {"SLIPWAY_DRIVER_FLOOR": "580", "PYTHONPATH": ":".join([str(file.parent), str(ROOT), *path])}
