"""Tells people of the end of a run, before its entry leaves the queue: `launcher notify RUN` in a process of its own,
with the profile of the submitter. A supervisor that dies meanwhile leaves the entry, and the next one tells it again;
the records in the store (`launcher.notices.ledger`) keep it from being told twice."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from launcher.backends.local.state import Site

PATIENCE: Final = 120.0  # seconds; what is not sent by then, a later pass of anybody sends


class EndNotifier:
    """Starts the processes that tell, and knows their ids, so that they are not ended as leftovers of a run."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._pids: set[int] = set()
        self._lock = Lock()

    def known(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._pids)

    def start(self, run: str, store: str, site: Site) -> subprocess.Popen[bytes] | None:
        """Starts to tell of a run; None where nobody is to be told, or where it can't be started."""
        if site.notify is None:
            return None
        folder, profile = site.notify
        named = ["--profile", profile] if profile else []
        try:
            with self._lock:
                child = subprocess.Popen(
                    [site.python, "-m", "launcher.cli", "notify", run, "--store", store, *named],
                    cwd=folder if Path(folder).is_dir() else "/",
                    env={"PATH": os.defpath, **site.env, **site.private},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
                self._pids.add(child.pid)
            return child
        except OSError as error:
            self._log(f"{run}: nobody is told of its end: {error.strerror}")
            return None

    def wait(self, child: subprocess.Popen[bytes]) -> int | None:
        """The exit code of a process that tells; None if it took too long and was ended."""
        with self._counted(child.pid):
            try:
                return child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                return None

    @contextmanager
    def _counted(self, pid: int) -> Iterator[None]:
        try:
            yield
        finally:
            with self._lock:
                self._pids.discard(pid)
