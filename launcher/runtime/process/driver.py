"""Tells when the machine's NVIDIA driver is older than an image's CUDA needs.

Where the NVIDIA Container Toolkit starts the container, the image's NVIDIA_REQUIRE_CUDA stops it before it begins. CDI,
some device plugins and NVIDIA_DISABLE_REQUIRE pass that over; CUDA then says only that no device can be used, and some
libraries go on without one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FLOOR: Final = "SLIPWAY_DRIVER_FLOOR"  # set by an image: the oldest branch of the driver, as 580
VERSION: Final = Path("/proc/driver/nvidia/version")  # of the host's kernel, in every container that has a GPU
_RELEASE: Final = re.compile(r"Kernel Module(?: for \S+)?\s+((\d+)[\d.]*)")


def too_old(environ: Mapping[str, str], file: Path = VERSION) -> str | None:
    """One line when the driver here is older than the image asks for; None when it is not, or there is no driver.

    It is no error: CUDA's forward-compatibility libraries, which a host may mount, make an older driver work.
    """
    floor = environ.get(FLOOR, "")
    if not floor.isdecimal():
        return None
    try:
        release = _RELEASE.search(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    if release is None or int(release[2]) >= int(floor):
        return None
    return (
        f"the NVIDIA driver of this machine is {release[1]}; this image's CUDA needs {floor} or newer: "
        "no GPU will be usable until it is updated"
    )
