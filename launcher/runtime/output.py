"""The log of a rank: what the command prints and the runtime's own lines, as one masked stream. It goes into the spool
and to the runtime's standard output, where tools like `kubectl logs` read it."""

from __future__ import annotations

import contextlib
import os
import threading
import time

from launcher.runtime.last_line import inner_code, last_line
from launcher.runtime.masking import Masker
from launcher.runtime.spool import Spool

PREFIX = "[slipway] "
_CHUNK = 1 << 16
_TAIL = 8192  # torchrun's report of a failure takes 3,000, and more with each process


class OutputStream:
    """Thread-safe. `say` writes a line of the runtime itself; `pump` copies a command's output until it ends."""

    def __init__(self, spool: Spool, masker: Masker, *, echo: int | None = 1) -> None:
        self.masker = masker
        self._spool = spool
        self._echo = echo
        self._lock = threading.Lock()
        self._last = b""  # the last bytes of the command, masked
        self._fresh = True  # at the beginning of a line

    def say(self, text: str) -> None:
        stamp = time.strftime("%H:%M:%S", time.gmtime())
        lines = [f"{PREFIX}{stamp} {line}\n" for line in self.masker.text(text).splitlines() or [""]]
        body = "".join(lines).encode(errors="surrogateescape")
        with self._lock:
            self._write(body if self._fresh else b"\n" + body)

    def pump(self, source: int) -> threading.Thread:
        """Starts a thread that reads `source` (a file descriptor, closed at its end)."""
        thread = threading.Thread(target=self._pump, args=(source,), name="output", daemon=True)
        thread.start()
        return thread

    def last_line(self) -> str:
        """The line of what the command printed that tells best why it failed; for messages."""
        return last_line(self._end())

    def inner_code(self) -> int | None:
        """The exit code of the process that failed first, where the command was torchrun."""
        return inner_code(self._end())

    def _end(self) -> str:
        with self._lock:
            return self._last.decode(errors="replace")

    def _pump(self, source: int) -> None:
        masker = self.masker.again()
        try:
            while chunk := os.read(source, _CHUNK):
                try:
                    self._command_wrote(masker.feed(chunk))
                except Exception:  # the pipe must be read on: a pipe that nobody reads would end the command
                    self._spool.lose(len(chunk))
        finally:
            os.close(source)
            self._command_wrote(masker.flush())

    def _command_wrote(self, data: bytes) -> None:
        if data:
            with self._lock:
                self._last = (self._last + data[-_TAIL:])[-_TAIL:]
                self._write(data)

    def _write(self, data: bytes) -> None:
        self._fresh = data.endswith(b"\n")
        self._spool.append(data)
        if self._echo is not None:
            with contextlib.suppress(OSError):  # nobody reads standard output; the store has the line anyway
                view = memoryview(data)
                while view:
                    view = view[os.write(self._echo, view) :]
