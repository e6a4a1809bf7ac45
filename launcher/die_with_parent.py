"""Runs a program that ends when the process that started it ends, however that was: python -m ... PARENT PROGRAM ...

PARENT is that process's id. Only Linux has the signal for it; elsewhere the program is run as it is.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h; it outlives exec


def die_with_parent(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` and ends it when this process ends. Start it from a thread that lives as
    long as the program is to run: the kernel sends the signal when that thread ends."""
    return [sys.executable, "-P", "-m", __name__, str(os.getpid()), *command]


def main(parent: str, *command: str) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != int(parent):  # it ended before the kernel knew
            sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
