"""The real `adb` with a server of the test's own, and phones that it has connected."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.support.android.adbd import Adbd
from tests.support.android.device import Device
from tests.support.needs import need
from tests.support.waiting import until

PORT = "ANDROID_ADB_SERVER_PORT"


def adb(*words: str) -> str:
    """What the client prints."""
    done = subprocess.run(["adb", *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr


@contextmanager
def adb_server() -> Iterator[None]:
    """A server of adb with a home of its own. Until the end every client of this process and its children uses it."""
    need("adb")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    before = os.environ.get(PORT)
    with tempfile.TemporaryDirectory(prefix="slipway-adb-") as home:
        server = subprocess.Popen(
            ["adb", "-P", str(port), "nodaemon", "server"],
            env={**os.environ, "HOME": home, "TMPDIR": home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.environ[PORT] = str(port)
        try:
            until(lambda: _answers(port), lambda: f"adb's server did not start: {server.poll()}")
            yield
        finally:
            server.terminate()
            server.wait()
            if before is None:
                del os.environ[PORT]
            else:
                os.environ[PORT] = before


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@contextmanager
def phones(count: int) -> Iterator[list[Adbd]]:
    """Phones that `adb devices` lists as ready."""
    with ExitStack() as stack:
        found = [stack.enter_context(Adbd(Device())) for _ in range(count)]
        for each in found:
            adb("connect", each.serial)
        until(lambda: all(f"{each.serial}\tdevice" in adb("devices") for each in found), lambda: adb("devices"))
        yield found
        for each in found:
            adb("disconnect", each.serial)
