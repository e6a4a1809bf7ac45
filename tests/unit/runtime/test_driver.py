"""The NVIDIA driver that is older than the image needs: one line, whatever starts the container."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.runtime.process.driver import too_old

# The first lines of /proc/driver/nvidia/version, of the closed and of the open kernel module (NVIDIA's documentation of
# its installer, and public bug reports that quote the file).
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Thu Jan 16 18:30:39 UTC 2025\nGCC version: 12\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs-builder@U22)\n"


@pytest.mark.parametrize("text", [CLOSED, OPEN])
@pytest.mark.parametrize(("release", "old"), [("570.86.15", True), ("580.65.06", False), ("595.91.07", False)])
def test_an_old_driver_is_told_in_one_line(tmp_path: Path, text: str, release: str, old: bool) -> None:
    file = tmp_path / "version"
    file.write_text(text.format(release))
    line = too_old({"SLIPWAY_DRIVER_FLOOR": "580"}, file)
    assert (line is not None) == old
    if line is not None:
        assert f"driver of this machine is {release}; this image's CUDA needs 580 or newer" in line
        assert "\n" not in line


@pytest.mark.parametrize("environ", [{}, {"SLIPWAY_DRIVER_FLOOR": ""}, {"SLIPWAY_DRIVER_FLOOR": "new"}])
def test_an_image_that_asks_for_no_driver_says_nothing(tmp_path: Path, environ: dict[str, str]) -> None:
    file = tmp_path / "version"
    file.write_text(CLOSED.format("1.0"))
    assert too_old(environ, file) is None


def test_a_machine_without_a_driver_and_a_file_of_another_form_say_nothing(tmp_path: Path) -> None:
    floor = {"SLIPWAY_DRIVER_FLOOR": "580"}
    assert too_old(floor, tmp_path / "none") is None
    (tmp_path / "other").write_text("something else")
    assert too_old(floor, tmp_path / "other") is None
