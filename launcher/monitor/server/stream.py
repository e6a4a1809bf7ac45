"""Tells browsers what changed, as server-sent events. An event names runs and holds no data: a page asks again for
what it shows, so a lost event costs nothing that the next one does not bring."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Final

import msgspec

QUIET: Final = 10.0  # seconds without an event after which a comment keeps the connection open
GATHER: Final = 0.2  # seconds in which events become one
MOST: Final = 100  # streams at once: one per browser


class TooMany(Exception):
    """There are MOST streams already."""


class Hub:
    """Many threads tell it of runs; every stream hears of them."""

    def __init__(self) -> None:
        self._streams: set[_Stream] = set()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def listeners(self) -> int:
        return len(self._streams)

    def changed(self, run: int) -> None:
        """From any thread."""
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.tell(run)

    def close(self) -> None:
        """Ends all streams, and with them the server's last requests."""
        self._closed = True
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.tell(None)

    async def listen(self) -> AsyncIterator[bytes]:
        """The bytes of one stream. Raises TooMany before the first of them."""
        stream = _Stream(asyncio.get_running_loop())
        with self._lock:
            if len(self._streams) >= MOST:
                raise TooMany
            self._streams.add(stream)
        try:
            yield b"retry: 1000\nevent: hello\ndata: {}\n\n"
            while not self._closed:
                runs = await stream.next()
                if runs is None:
                    return
                if runs:
                    data = msgspec.json.encode({"runs": [str(run) for run in sorted(runs)]})
                    yield b"event: changed\ndata: " + data + b"\n\n"
                else:
                    yield b": still here\n\n"
        finally:
            with self._lock:
                self._streams.discard(stream)


class _Stream:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._runs: set[int] = set()
        self._ended = False
        self._lock = threading.Lock()
        self._woken = asyncio.Event()

    def tell(self, run: int | None) -> None:
        with self._lock:
            if run is None:
                self._ended = True
            else:
                self._runs.add(run)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    async def next(self) -> set[int] | None:
        """The runs that changed; none after QUIET seconds; None when the stream ends."""
        try:
            await asyncio.wait_for(self._woken.wait(), QUIET)
            if not self._ended:
                await asyncio.sleep(GATHER)
        except TimeoutError:
            return set()
        with self._lock:
            self._woken.clear()
            runs, self._runs = self._runs, set()
            return None if self._ended else runs
