"""The log of a rank: what the command prints and the runtime's own lines, as one masked stream. It goes into the spool
and to the runtime's standard output, where tools like `kubectl logs` read it."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from typing import Final

from launcher.runtime.process.verdict import how
from launcher.runtime.secrets.masking import Masker
from launcher.runtime.uploads.spool import Spool

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


MOST: Final = 300  # characters
# torchrun's log: a letter for the level, the date, the time, its own process, then its file
_TORCHRUN: Final = re.compile(r"[A-Z]\d{4} [\d:.]+ (?P<process>\d+) torch/distributed/elastic/\S+\] (?P<said>.*)")
_FAILED: Final = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) ")


def last_line(text: str) -> str:
    """The last line that is not empty. Where torchrun ends with its report, which does not say why: which of its
    processes failed, and the line before torchrun's own."""
    lines = [line for each in text.splitlines() if (line := each.strip())]
    if not lines:
        return ""
    return (_of_torchrun(lines) or lines[-1])[:MOST]


def inner_code(text: str) -> int | None:
    """The exit code of the process that failed first, where the output ends with torchrun's report."""
    lines = [line for each in text.splitlines() if (line := each.strip())]
    failed = _failed(lines)
    return int(failed[0]) if failed is not None else None


def _of_torchrun(lines: list[str]) -> str:
    failed = _failed(lines)
    if failed is None:
        return ""
    code, rank, before = failed
    return f"local rank {rank} {how(int(code))}{before}"


def _failed(lines: list[str]) -> tuple[str, str, str] | None:
    """Of the process that torchrun says failed first: its exit code, its local rank, what was printed before torchrun
    spoke. None where the lines do not end with torchrun's report."""
    if not lines or set(lines[-1]) != {"="}:
        return None
    own = {number: found for number, line in enumerate(lines) if (found := _TORCHRUN.match(line))}
    failed = next((found for found in reversed(own.values()) if _FAILED.match(found["said"])), None)
    if failed is None:
        return None
    code, rank = _FAILED.match(failed["said"]).groups()  # type: ignore[union-attr]
    first = next(number for number, found in own.items() if found["process"] == failed["process"])
    return code, rank, f": {lines[first - 1]}" if first else ""
