"""The verdict before a training: what is printed, what is refused, and that the advice holds."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.unit.training.test_plan import written


def test_a_plan_needs_no_torch_unless_it_looks_for_a_device(tmp_path: Path) -> None:
    import subprocess

    code = "import sys; from training.plan import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code, "--config", written(tmp_path), "--gpu", "H200"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
