"""The end of a stand-in's machine: as when the power goes, nothing of it runs any more, and nothing has a last word."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

from launcher.runtime.process import procs


def power_off(process: subprocess.Popen[bytes]) -> None:
    """Kills a process group and all that its processes started, also in sessions of their own; returns when they are
    gone. What ends by itself after its parent would be seen for a moment, which no machine's is."""
    below = procs.descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for each in below:
        procs.send(each, signal.SIGKILL)
    process.wait()
    boot = procs.boot_id()
    while any(procs.alive(each.pid, each.start, boot) for each in below):
        time.sleep(0.01)
