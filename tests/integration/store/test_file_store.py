"""What only a folder can get wrong: half-written files, keys that leave it, rubbish of dead writers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.store.base import Store
from tests.support.waiting import until

WRITER = """
import sys, hashlib, os
from launcher.store import open_store
store = open_store(sys.argv[1])
print("ready", flush=True)
number = 0
while True:
    body = os.urandom(300_000)
    key = f"k/{number % 20}"
    store.put(key, hashlib.sha256(body).hexdigest().encode() + body)
    store.create(f"c/{number}", hashlib.sha256(body).hexdigest().encode() + body)
    number += 1
"""


@pytest.mark.two_bodies
def test_kill_9_leaves_no_part_of_an_object(file_store: Store) -> None:
    import hashlib

    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", WRITER, file_store.url], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        until(lambda: list(file_store.scan("")))  # on a busy machine its first object takes a while
        time.sleep(0.15)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = list(file_store.scan(""))
        assert found
        for meta in found:
            body = file_store.get(meta.key)
            assert body[:64] == hashlib.sha256(body[64:]).hexdigest().encode()


def test_a_disk_that_fills_up_leaves_no_object(tmp_path: Path) -> None:
    script = (
        "import resource, signal, sys\n"
        "from launcher.store import open_store\n"
        "from launcher.errors import Unreachable\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "store = open_store(sys.argv[1])\n"
        "try:\n    store.put('a/b', b'x' * 5000)\n"
        "except Unreachable as error:\n    print(error)\n"
        "print([m.key for m in store.scan('')])\n"
    )
    url = (tmp_path / "store").as_uri()
    result = subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, check=True)
    assert "File too large" in result.stdout
    assert result.stdout.endswith("[]\n")
    assert list((tmp_path / "store/.tmp").iterdir()) == []


def test_a_file_store_imports_no_sdk() -> None:
    script = (
        "import sys; from launcher.store import open_store; s = open_store(sys.argv[1]); s.read('a')\n"
        "print([m for m in sys.modules if m.partition('.')[0] in ('boto3', 'botocore', 'obstore', 'msgspec')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, "file:///nothing"], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
