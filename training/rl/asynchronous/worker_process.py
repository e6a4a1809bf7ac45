"""The training's side of the worker: its process, and the pipe to it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from training.rl.config import RlConfig

ENDING = 40.0  # seconds that a worker may take to close its desktops
TORCHRUN = re.compile(
    r"((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|(TORCHELASTIC|PET|ACCELERATE|FSDP)_\w+"
)


class WorkerGone(Exception):
    """The worker's process has ended."""


class WorkerLink:
    """The training's end of the pipe to a worker."""

    def __init__(self, link: Connection) -> None:
        self.link = link

    def send(self, news: Any) -> None:
        with contextlib.suppress(OSError):  # it is gone: what is read next says so
            self.link.send(news)

    def news(self, patience: float) -> Any | None:
        """What it tells; None where it tells nothing for so many seconds. Raises WorkerGone."""
        try:
            return self.link.recv() if self.link.poll(patience) else None
        except (EOFError, OSError):
            raise WorkerGone from None

    def end(self) -> str:
        """Ends the worker, and tells how it ended."""
        self.link.close()
        return "its link closed"


class WorkerProcess(WorkerLink):
    """A worker in a process of its own. `folder`: where the weights are published."""

    def __init__(self, config: RlConfig, folder: Path) -> None:
        mine, theirs = Pipe()
        super().__init__(mine)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "training.rl.asynchronous.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=outside_torchrun(os.environ),
        )
        theirs.close()
        self.send((config, str(folder)))

    def end(self) -> str:
        self.link.close()
        try:
            code = self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return f"exit code {code}" if code >= 0 else f"signal {-code}"


def outside_torchrun(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what torchrun and accelerate tell each of their processes: libraries would take the worker for one."""
    return {name: value for name, value in environment.items() if not TORCHRUN.fullmatch(name)}
