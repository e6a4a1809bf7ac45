"""An image's runtime on a machine whose NVIDIA driver is too old: one line in the log, before the command's own."""

from __future__ import annotations

from pathlib import Path

from tests.integration.runtime.rig import Rig, python
from tests.support import old_driver


def test_the_log_tells_of_an_old_driver_before_the_command_speaks(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, python("print('the command')"))
    rig.environ |= old_driver.environment(tmp_path)
    assert rig.go() == 0
    lines = rig.log().decode().splitlines()
    (told,) = [number for number, line in enumerate(lines) if old_driver.RELEASE in line]
    assert "this image's CUDA needs 580 or newer" in lines[told]
    assert told < next(number for number, line in enumerate(lines) if "the command" in line)


def test_a_driver_that_is_new_enough_is_not_spoken_of(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, python("print('the command')"))
    rig.environ |= old_driver.environment(tmp_path) | {"SLIPWAY_DRIVER_FLOOR": "570"}
    assert rig.go() == 0
    assert old_driver.RELEASE not in rig.log().decode()
