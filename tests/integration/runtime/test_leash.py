"""A leash is a fork of its runtime: what nobody may read there, nobody may read here."""

from __future__ import annotations

import ctypes
import subprocess
import sys

RUNTIME = """
import subprocess
from launcher.runtime.secrets.credentials import cannot_be_read
from launcher.runtime.process.leash import Leash
cannot_be_read()
leash = Leash.fork()
seen = subprocess.run(["cat", f"/proc/{leash.pid}/environ"], capture_output=True)
leash.let_go()
print(seen.returncode != 0, b"CANARY" in seen.stdout)
"""


def no_capabilities() -> None:
    libc = ctypes.CDLL(None)
    for one in range(41):
        libc.prctl(24, one, 0, 0, 0)


def test_a_leash_cannot_be_read_where_its_runtime_cannot() -> None:
    found = subprocess.run(
        [sys.executable, "-c", RUNTIME],
        env={"CANARY": "secret"},
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=no_capabilities,
    )
    assert found.stdout == "True False\n"
