"""SIGTERM and SIGINT are handled by a thread of their own, so that no code is interrupted while it holds a lock."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable


class Signals:
    """
    terminated    when the first SIGTERM came (monotonic seconds), or None
    on_terminate  called at the first SIGTERM; may be replaced

    `wait` sleeps until a signal or a `wake()` comes, or a descriptor is ready.
    """

    def __init__(self, on_terminate: Callable[[], None]) -> None:
        self.terminated: float | None = None
        self.on_terminate = on_terminate
        self._read, self._write = os.pipe()
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._write, self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._run, name="signals", daemon=True).start()

    def _run(self) -> None:
        while os.read(self._read, 1):
            if self.terminated is None:
                self.terminated = time.monotonic()
            with contextlib.suppress(Exception):  # the next signal must be handled too
                self.on_terminate()
            self.wake()

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full, so the waiter wakes anyway
            os.write(self._wake_write, b"\0")

    def wait(self, descriptor: int, seconds: float) -> None:
        ready, _, _ = select.select([descriptor, self._wake_read], [], [], seconds)
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
