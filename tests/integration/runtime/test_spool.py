"""Streams on their way to the store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.runtime.uploads.spool import Spool


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool")
    yield spool
    spool.close()


def test_a_full_disk_loses_bytes_and_says_how_many(tmp_path: Path) -> None:
    code = """
import resource, sys
from collections.abc import Callable
from pathlib import Path
from launcher.runtime.uploads.spool import Spool
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
spool = Spool(Path(sys.argv[1]))
spool.append(b"x" * 900); spool.append(b"y" * 900); spool.append(b"z")
assert (spool.size, spool.lost) == (1000, 801), (spool.size, spool.lost)
assert spool.read(0, 2000) == b"x" * 900 + b"y" * 100
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "spool")], check=True)


def test_what_a_full_disk_lost_is_told_where_it_was(tmp_path: Path) -> None:
    code = """
import resource, sys
from collections.abc import Callable
from pathlib import Path
from launcher.runtime.uploads.spool import Shipper, Spool, lost_here
from launcher.store.file import FileStore
folder = Path(sys.argv[1])
store = FileStore(folder / "store", sync=False)
(soft, hard) = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
spool = Spool(folder / "spool", mark=lost_here)
lines = Spool(folder / "lines", lines=True)
shipper = Shipper(store, spool, lambda first, end: f"logs/{first:020d}-{end:020d}.log")
spool.append(b"x" * 900); spool.append(b"y" * 900)
lines.append(b"x" * 900); lines.append(b"y" * 900); lines.append(b"z" * 100)
assert (lines.size, lines.lost) == (1000, 900), (lines.size, lines.lost)
assert lines.read(0, 2000) == b"x" * 900 + b"z" * 100
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
spool.append(b"room again\\n")
spool.append(b"z" * 900)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
shipper.finish()
text = store.get(next(iter(store.scan("logs/"))).key)
first, room, second = text.partition(b"room again\\n")
assert first.startswith(b"x" * 900 + b"y" * 100) and b" 800 bytes of this log are lost" in first, first[-200:]
told = int(second.split(b"[slipway] ")[1].split()[0])
assert second.count(b"z") == 900 - told and spool.lost == 800 + told, (second[-200:], spool.lost)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
