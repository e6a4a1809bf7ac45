"""Streams on their way to the store."""

from __future__ import annotations

import hashlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.errors import Unreachable
from launcher.runtime.secrets.masking import Masker
from launcher.runtime.uploads.log_stream import OutputStream
from launcher.runtime.uploads.spool import FEW, LARGE, PIECE, Shipper, Spool
from launcher.store.file import FileStore
from launcher.store.logs import read_pieces
from tests.support.waiting import until


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store", sync=False)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool")
    yield spool
    spool.close()


def key(first: int, end: int) -> str:
    return f"logs/{first:020d}-{end:020d}.log"


def keys(store: FileStore) -> list[str]:
    return [meta.key for meta in store.scan("logs/")]


def test_pieces_then_one_whole(store: FileStore, spool: Spool) -> None:
    shipper = Shipper(store, spool, key, first=0.01, longest=0.01)
    spool.append(b"one\n")
    until(lambda: store.head(key(0, 4)))
    spool.append(b"two\n")
    until(lambda: store.head(key(4, 8)))
    shipper.finish()
    assert keys(store) == [key(0, 8)]
    assert store.get(key(0, 8)) == b"one\ntwo\n"


def test_a_full_piece_does_not_wait(store: FileStore, spool: Spool) -> None:
    shipper = Shipper(store, spool, key, first=3600)
    spool.append(b"x" * PIECE)
    until(lambda: store.head(key(0, PIECE)))
    shipper.finish()
    assert keys(store) == [key(0, PIECE)]


def test_nothing_written_nothing_stored(store: FileStore, spool: Spool) -> None:
    Shipper(store, spool, key).finish()
    assert keys(store) == []


def test_a_long_stream_keeps_its_pieces_and_leaves_the_disk(store: FileStore, spool: Spool) -> None:
    shipper = Shipper(store, spool, key, first=0.01, whole=PIECE)
    body = os.urandom(PIECE)
    for _ in range(20):
        spool.append(body)
    until(lambda: shipper.sent == spool.size)
    spool.append(b"end")
    shipper.finish()
    assert len(keys(store)) > 1
    assert b"".join(piece.body for piece in read_pieces(store, "logs/", ".log")) == body * 20 + b"end"
    assert spool.path.stat().st_blocks * 512 < 4 * PIECE


@pytest.mark.parametrize(("piece", "joined"), [(FEW, False), (FEW // 16, True)])
def test_a_large_log_of_large_pieces_is_not_sent_twice(
    piece: int, joined: bool, store: FileStore, spool: Spool
) -> None:
    """Of a log of 1 GB each byte was read, hashed and sent a second time at the end, which a reader does not need."""
    shipper = Shipper(store, spool, key, first=0.0, longest=0.0)
    body = os.urandom(piece)
    while spool.size < LARGE + 1:
        spool.append(body)
        until(lambda: shipper.sent == spool.size)
    spool.append(b"end")
    shipper.finish()
    assert (len(keys(store)) == 1) == joined
    assert keys(store)[-1].endswith(f"-{spool.size:020d}.log")
    found = hashlib.sha256()
    for each in read_pieces(store, "logs/", ".log"):
        found.update(each.body)
    assert found.digest() == hashlib.sha256(body * (spool.size // piece) + b"end").digest()


class Away(FileStore):
    """A store that can not be reached while `away`."""

    away = True

    def put(self, key: str, body: bytes) -> None:
        if self.away:
            raise Unreachable("away")
        super().put(key, body)

    def send(self, key, source, size, sha256=None, known=None):  # type: ignore[no-untyped-def]
        if self.away:
            raise Unreachable("away")
        return super().send(key, source, size, sha256, known)


def test_a_store_that_is_away_loses_nothing(tmp_path: Path, spool: Spool) -> None:
    store = Away(tmp_path / "store", sync=False)
    shipper = Shipper(store, spool, key, first=0.01, longest=0.02)
    spool.append(b"one\n")
    time.sleep(0.05)
    store.away = False
    until(lambda: store.head(key(0, 4)))
    store.away = True
    spool.append(b"two\n")
    with pytest.raises(Unreachable):
        shipper.finish()
    store.away = False
    shipper.finish()
    assert store.get(key(0, 8)) == b"one\ntwo\n"


class Late(Away):
    """Every first try of a key fails after its body has left; `deliver` executes those bodies, as a server may."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, sync=False)
        self.away = False
        self.late: dict[str, bytes] = {}

    def put(self, key: str, body: bytes) -> None:
        self._once(key, body)
        super().put(key, body)

    def send(self, key, source, size, sha256=None, known=None):  # type: ignore[no-untyped-def]
        self._once(key, b"".join(bytes(piece) for piece in source()))
        return super().send(key, source, size, sha256, known)

    def _once(self, key: str, body: bytes) -> None:
        if key not in self.late:
            self.late[key] = body
            raise Unreachable("the connection broke")

    def deliver(self) -> None:
        for key, body in self.late.items():
            FileStore.put(self, key, body)


def test_a_put_that_comes_late_changes_nothing(tmp_path: Path, spool: Spool) -> None:
    store = Late(tmp_path / "store")
    shipper = Shipper(store, spool, key, first=0.01, longest=0.02)
    for line in range(10):
        spool.append(f"line {line}\n".encode())
        until(lambda line=line: shipper.sent > line)  # type: ignore[misc]

    def insist(step: Callable[[], None]) -> None:
        try:
            step()
        except Unreachable:
            spool.append(b"the store is away\n")
            step()

    shipper.finish(insist)
    store.deliver()
    whole = b"".join(piece.body for piece in read_pieces(store, "logs/", ".log"))
    assert whole == spool.read(0, shipper.sent)
    assert whole.startswith(b"".join(f"line {line}\n".encode() for line in range(10)))


def piped(output: OutputStream) -> tuple[int, threading.Thread]:
    read, write = os.pipe()
    return write, output.pump(read)


def test_own_lines_begin_on_a_line_of_their_own(spool: Spool) -> None:
    output = OutputStream(spool, Masker(["s3cret"]), echo=None)
    write, thread = piped(output)
    os.write(write, b"loss 0.1")
    until(lambda: spool.size)
    output.say("the s3cret\nis out")
    os.write(write, b"step 2\n")
    os.close(write)
    thread.join()
    lines = spool.read(0, spool.size).decode().splitlines()
    assert [line[:9] for line in lines] == ["loss 0.1", "[slipway]", "[slipway]", "step 2"]
    assert lines[1].endswith(" the ***")
    assert output.last_line() == "loss 0.1step 2"  # the command wrote one line


def test_a_secret_in_two_writes_is_masked(spool: Spool) -> None:
    output = OutputStream(spool, Masker(["s3cret"]), echo=None)
    write, thread = piped(output)
    os.write(write, b"token s3c")
    until(lambda: spool.size)
    os.write(write, b"ret and s3")
    os.close(write)
    thread.join()
    assert spool.read(0, 100) == b"token *** and s3"


def test_binary_in_one_line_takes_little_memory(store: FileStore, spool: Spool) -> None:
    block = bytes(range(256)).replace(b"\n", b"") * 4000
    output = OutputStream(spool, Masker(["s3cret"]), echo=None)
    shipper = Shipper(store, spool, key)
    write, thread = piped(output)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with os.fdopen(write, "wb", buffering=0) as sink:
        for _ in range(40):
            sink.write(block)
    thread.join()
    shipper.finish()
    assert store.head(key(0, 40 * len(block))).size == 40 * len(block)  # type: ignore[union-attr]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB
    assert store.get_range(key(0, 40 * len(block)), 255 * 4000 * 7, 255 * 4000 * 8) == block
