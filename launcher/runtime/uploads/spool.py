"""Sends a stream of bytes (log, metrics) to the store: first into a local file, then in pieces whose keys name their
range of bytes.

The command never waits for a slow or unreachable store, and no line is held in memory, however long it is. A range is
fixed before its first put and is repeated until it is in the store, so a put that the server executes late changes
nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from launcher.errors import Unreachable
from launcher.store.base import Store

PIECE: Final = 1 << 20  # bytes; so many are sent at once, before the interval has passed; of a long stream a 16th
MOST: Final = 8 << 20  # bytes; largest piece, and so what one request holds in memory
FIRST: Final = 0.5  # seconds until the first piece; doubles with each piece up to LONGEST
LONGEST: Final = 15.0
WHOLE: Final = 1 << 30  # bytes; a longer stream stays in pieces, and sent bytes are freed on the local disk
LARGE: Final = 64 << 20  # bytes; a longer stream stays in pieces, too, if they are so large in the mean:
FEW: Final = 4 << 20  # bytes, what a reader asks for at once
_KEEP_SIZE_AND_PUNCH = 3  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE


def lost_here(count: int) -> bytes:
    """The line that replaces lost bytes in a log."""
    return f"\n[slipway] {count} bytes of this log are lost: there was no space to keep them\n".encode()


class Spool:
    """An append-only local file. If the disk is full, bytes are lost and counted; no exception is raised.

    mark   number of lost bytes -> the bytes that replace them
    lines  the bytes of one `append` are kept completely or not at all
    """

    def __init__(self, path: Path, *, mark: Callable[[int], bytes] | None = None, lines: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.size = 0
        self.lost = 0
        self.changed = threading.Condition()
        self._mark, self._lines = mark, lines
        self._untold = 0  # bytes lost since the last mark
        self._tail = b""  # the last mark, if the disk stayed full: it is sent after the end of the file
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, data: bytes) -> None:
        with self.changed:
            if not self._tail:
                self._append(data)
            self.changed.notify_all()

    def _append(self, data: bytes) -> None:
        lost = len(data)
        if self._told():
            lost -= self._write(data, whole=self._lines)
        self.lost += lost
        self._untold += lost

    def lose(self, count: int) -> None:
        """Counts bytes that could not be kept."""
        with self.changed:
            self.lost += count
            self._untold += count

    def _told(self) -> bool:
        """Marks the place of lost bytes. Returns whether that is done."""
        if self._mark is None or not self._untold:
            return True
        mark = self._mark(self._untold)
        if self._write(mark, whole=True) < len(mark):
            return False
        self._untold = 0
        return True

    def _write(self, data: bytes, *, whole: bool) -> int:
        """Writes `data` and returns how many bytes of it are in the file; with `whole` all or none."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            if whole:
                view = memoryview(data)
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self.size)
        self.size += len(data) - len(view)
        return len(data) - len(view)

    def seal(self) -> None:
        """Ends the stream. If bytes were lost at the end, their mark is kept in memory and sent after the file."""
        with self.changed:
            if self._untold and self._mark is not None and not self._tail:
                self._tail = self._mark(self._untold)
                self.size += len(self._tail)

    def read(self, start: int, end: int) -> bytes:
        edge = self.size - len(self._tail)
        body = os.pread(self._file, min(end, edge) - start, start) if start < edge else b""
        return body + self._tail[max(0, start - edge) : max(0, end - edge)]

    def free(self, end: int) -> None:
        """Frees the disk blocks of [0, end), if the file system can do that."""
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).fallocate(self._file, _KEEP_SIZE_AND_PUNCH, ctypes.c_longlong(0), ctypes.c_longlong(end))

    def close(self) -> None:
        os.close(self._file)
        self.path.unlink(missing_ok=True)


class Shipper:
    """Sends a spool's bytes to the store as they come. `finish` replaces small pieces by one object.

    `key(first, end)` is the key of the bytes [first, end). `sent`: bytes that are in the store.
    """

    def __init__(
        self,
        store: Store,
        spool: Spool,
        key: Callable[[int, int], str],
        *,
        first: float = FIRST,
        longest: float = LONGEST,
        whole: int = WHOLE,
    ) -> None:
        self.spool = spool
        self.pieces: list[tuple[int, int]] = []  # ranges that are in the store
        self.sent = 0
        self._store = store
        self._key = key
        self._interval = first
        self._longest = longest
        self._whole = whole
        self._next: tuple[int, int] | None = None  # the range being sent; it stays the same until the store has it
        self._end: int | None = None  # the end of the whole object being sent; it stays the same too
        self._joined = True  # whether one object replaces the pieces
        self._replaced: list[str] = []  # keys of the pieces that the whole object replaced
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ship", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = 0.0  # when the next bytes are sent
        while not self._stopping.is_set():
            with self.spool.changed:
                waiting = self.spool.size - self.sent
                if not waiting:
                    self.spool.changed.wait(1.0)
                    due = 0.0
                    continue
                now = time.monotonic()
                due = due or now + self._interval
                if waiting < min(MOST, max(PIECE, self.sent // 16)) and now < due:
                    self.spool.changed.wait(due - now)
                    continue
            due = 0.0
            try:
                self._send()
                self._interval = min(2 * self._interval, self._longest)
            except Exception:  # of the store, the disk or the memory: without this thread the log would end
                self._stopping.wait(self._interval)  # the bytes are on the local disk

    def _send(self) -> None:
        if self._next is None:
            self._next = (self.sent, min(self.spool.size, self.sent + MOST))
        first, end = self._next
        self._store.put(self._key(first, end), self.spool.read(first, end))
        self.pieces.append(self._next)
        self._next = None
        self.sent = end
        if self.sent > self._whole:
            self.spool.free(self.sent)

    def finish(self, insist: Callable[[Callable[[], None]], None] = lambda step: step()) -> None:
        """Sends the rest; many small pieces are replaced by one object. `insist` runs each step and repeats it after an
        error while there is time. Raises Unreachable. May be called again, after an error or for bytes that came
        later."""
        self._stopping.set()
        with self.spool.changed:
            self.spool.changed.notify_all()
        self._thread.join()
        self.spool.seal()
        if self._end is None:
            self._end = self.spool.size
            few = self._end > LARGE and len(self.pieces) * FEW <= self._end
            self._joined = 0 < self._end <= self._whole and not few
        if self._joined and self.sent <= self._end and self.pieces != [(0, self._end)]:
            insist(self._put_whole)
        insist(self._delete_replaced)
        end = self.spool.size  # lines that come later, perhaps about these puts, are not sent
        while self.sent < end:  # more than one object may hold, or written meanwhile
            insist(self._send)

    def _put_whole(self) -> None:
        # Readers find bytes by their offsets and ignore pieces that another object covers, so they never miss a byte.
        assert self._end is not None
        end, whole = self._end, self._key(0, self._end)
        try:
            self._store.send(whole, lambda: self._bodies(end), end)
        except OSError as error:
            raise Unreachable(f"{whole}: {error}") from error
        if self._next is not None:  # the server may have executed this put, or may execute it later
            self.pieces.append(self._next)
        self._replaced = [self._key(*piece) for piece in self.pieces if piece != (0, end)]
        self._next = None
        self.sent = end
        self.pieces = [(0, end)]

    def _delete_replaced(self) -> None:
        if self._replaced:
            self._store.delete(self._replaced)
            self._replaced = []

    def _bodies(self, end: int) -> Iterator[bytes]:
        for start in range(0, end, MOST):
            yield self.spool.read(start, min(end, start + MOST))
