"""A trainer's command leaves its process group when the training is finished."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("processes", "code"), [("2", 0), ("1", -6)])
def test_one_of_several_processes_is_not_aborted_on_its_way_out(processes: str, code: int) -> None:
    """Alone the same abort shows: what leaves no other process behind leaves by Python's exit."""
    program = (
        "import atexit, os; from training.common.entry import leave; atexit.register(os.abort); print('done'); leave(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "WORLD_SIZE": processes}, capture_output=True, text=True
    )
    assert done.returncode == code
    if processes == "2":
        assert done.stdout == "done\n"
