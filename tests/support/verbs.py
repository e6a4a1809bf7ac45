"""The command line as a user calls it: a process of its own, state and configuration apart from this user's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def launcher(cwd: Path, *words: str, timeout: float = 280.0) -> str:
    """Standard output of `launcher WORDS...`, which has to succeed within `timeout` seconds."""
    environ = {**os.environ, "XDG_STATE_HOME": str(cwd / "home"), "XDG_CONFIG_HOME": str(cwd / "home")}
    done = subprocess.run(
        [Path(sys.executable).with_name("launcher"), *words],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout
