"""Transfers of bytes: from files, into files, in parallel pieces; hashed and checked meanwhile."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Full, Queue
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import uuid4

from launcher.errors import SlipwayError

if TYPE_CHECKING:  # what reads small records alone does without them
    from concurrent.futures import Future

PIECE: Final = 8 << 20
SMALL: Final = 64 << 10
Piece: TypeAlias = "bytes | memoryview"
Progress: TypeAlias = Callable[[int, int], None]  # bytes done, bytes in all
Known: TypeAlias = Callable[[int, str], None]  # takes the size and the sha256 (hex) of what is sent; may raise


class Damaged(SlipwayError):
    """Bytes that differ from their manifest even after they were fetched again."""

    exit_code = 4


class TransferStopped(Exception):
    """This process has stopped the transfer."""


def file_pieces(path: Path) -> Iterator[bytes]:
    """A local file from its start; raises OSError."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - thousands of them
        # memory is taken for as much as is asked for, and it may grow meanwhile
        room = min(PIECE, max(SMALL, os.fstat(file.fileno()).st_size + 1))
        while piece := file.read(room):
            yield piece


def hashed(pieces: Iterable[Piece], sha: hashlib._Hash) -> Iterator[Piece]:
    for piece in pieces:
        sha.update(piece)
        yield piece


def checked(
    pieces: Iterable[Piece],
    sha: hashlib._Hash,
    size: int,
    sha256: str | None,
    what: str,
    known: Known | None = None,
) -> Iterator[Piece]:
    """The same pieces, hashed into `sha`. With a `sha256`, raises Damaged before the last piece if size or hash are
    wrong, so that the consumer never completes a damaged file. `known` is called before the last piece, too."""
    if sha256 is None and known is None:
        yield from hashed(pieces, sha)
        return
    received = 0
    held: Piece | None = None
    for piece in pieces:
        if held is not None:
            yield held
        sha.update(piece)
        received += len(piece)
        held = piece
    if sha256 is not None and (received != size or sha.hexdigest() != sha256):
        raise Damaged(f"{what}: {received} bytes with sha256 {sha.hexdigest()[:12]}, not {size} with {sha256[:12]}")
    if known is not None:
        known(received, sha.hexdigest())
    if held is not None:
        yield held


def pumped(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same pieces, read by another thread, two ahead of the consumer.

    obstore consumes pieces in a place where its own calls are forbidden, and a piece may come from another store.
    """
    queue: Queue[Piece | BaseException | None] = Queue(2)
    given_up = threading.Event()

    def hand_over(item: Piece | BaseException | None) -> None:
        while not given_up.is_set():
            with suppress(Full):
                queue.put(item, timeout=0.1)
                return

    def pump() -> None:
        try:
            for piece in pieces:
                hand_over(piece)
                if given_up.is_set():
                    return
            hand_over(None)
        except BaseException as error:
            hand_over(error)

    thread = threading.Thread(target=pump, name="slipway-pump", daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        given_up.set()
        thread.join()


def receive(pieces: Iterable[Piece], path: Path, *, sync: bool) -> None:
    """Writes pieces into a file beside `path` and renames it. After an error no file is left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".slipway-{uuid4().hex}")
    try:
        with part.open("xb", buffering=0) as file:
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[file.write(view) :]
            if sync:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def download(pieces: Iterable[Piece], path: Path) -> str:
    """Writes the pieces into a file, durably. Returns the sha256 (hex)."""
    sha = hashlib.sha256()
    receive(hashed(pieces, sha), path, sync=True)
    return sha.hexdigest()


def ahead(fetch: Callable[[int, int], Piece], size: int, *, start: int = 0, window: int = 4) -> Iterator[Piece]:
    """The ranges of an object in order. `window` of them are fetched at once; at most window + 1 are in memory."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(window, thread_name_prefix="slipway-get") as pool:
        waiting: deque[Future[Piece]] = deque()
        try:
            while start < size or waiting:
                while start < size and len(waiting) < window:
                    waiting.append(pool.submit(fetch, start, min(start + PIECE, size)))
                    start += PIECE
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


class Meter:
    """Counts bytes over many threads and calls `progress(done, total)`, both in bytes."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total = total
        self.stopped = False  # once set, running transfers raise TransferStopped
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def expect(self, count: int) -> None:
        """Adds `count` bytes to the expected total."""
        with self._lock:
            self.total += count

    def add(self, count: int) -> None:
        if self._progress is not None and count:
            with self._lock:
                self._done += count
                self._progress(min(self._done, self.total), self.total)

    def through(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The same pieces, counted. After an error the bytes counted here are subtracted again."""
        counted = 0
        try:
            for piece in pieces:
                if self.stopped:
                    raise TransferStopped
                counted += len(piece)
                self.add(len(piece))
                yield piece
        except BaseException:
            self.add(-counted)
            raise


class TransferThreads:
    """Threads for transfers: many small transfers at once, but only two large ones, which use parallel parts. Several
    threads may share the same lanes, which bounds their memory together."""

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._small = ThreadPoolExecutor(8, thread_name_prefix="slipway-small")
        self._large = ThreadPoolExecutor(2, thread_name_prefix="slipway-large")

    def __enter__(self) -> TransferThreads:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self._small, self._large):
            pool.shutdown(cancel_futures=True)

    def stop(self) -> None:
        """Drops transfers that have not begun."""
        for pool in (self._small, self._large):
            pool.shutdown(wait=False, cancel_futures=True)

    def run(self, tasks: Iterable[tuple[int, Callable[[], None]]]) -> None:
        """Runs (size, task) pairs. After the first error no further task begins, and the error is raised when the
        running tasks have ended."""
        from concurrent.futures import as_completed, wait

        tiny: list[Callable[[], None]] = []
        futures: list[Future[None]] = []
        for size, task in tasks:
            if size <= SMALL:
                tiny.append(task)
            else:
                futures.append((self._large if size > PIECE else self._small).submit(task))
        failed = threading.Event()
        # of very many each thread takes several at once: to hand them over one by one takes a tenth of their time
        several = min(16, len(tiny) // 256 + 1)
        for at in range(0, len(tiny), several):
            futures.append(self._small.submit(_one_after_another, tiny[at : at + several], failed))
        try:
            for future in as_completed(futures):
                future.result()
        finally:
            failed.set()
            for future in futures:
                future.cancel()
            wait([future for future in futures if not future.cancelled()])


def _one_after_another(tasks: Iterable[Callable[[], None]], failed: threading.Event) -> None:
    """Runs tasks until one fails, here or elsewhere."""
    for task in tasks:
        if failed.is_set():
            return
        try:
            task()
        except BaseException:
            failed.set()
            raise


def in_parallel(tasks: Iterable[tuple[int, Callable[[], None]]]) -> None:
    """`Lanes.run` on lanes of its own."""
    with TransferThreads() as lanes:
        lanes.run(tasks)
