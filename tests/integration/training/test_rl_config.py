"""training.rl refuses what contradicts itself, in one line, before torch is loaded."""

from __future__ import annotations

import subprocess
import sys


def test_the_configuration_loads_no_torch() -> None:
    code = "import sys; from training.rl import config, train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
