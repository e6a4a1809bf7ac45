"""What a run's own process takes to ship a long log: CPU seconds to read the command's output, keep it, show it, and
put it into a store of S3 on this machine.

    GB=1 OLD=<another checkout> python -m tests.bench.log

The command and the server are processes of their own and not counted. Beside it: the sha256 of as many bytes.
"""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launcher.runtime.secrets.masking import Masker
from launcher.runtime.uploads.log_stream import OutputStream
from launcher.runtime.uploads.spool import Shipper, Spool, lost_here
from launcher.store import open_store
from launcher.store.layout import LOG, AttemptKeys
from launcher.store.logs import list_pieces

SIZE = int(float(os.environ.get("GB", "1")) * 1e9)
LINE = "step 1234 loss 0.123456 learning_rate 1.0e-05 tokens/s 11858"


def used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def ship(url: str) -> None:
    keys = AttemptKeys(f"log-{time.time_ns():012x}"[:16], 1)
    store = open_store(url)
    began, cpu = time.monotonic(), used()
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("wb") as shown:
        spool = Spool(Path(folder) / "log", mark=lost_here)
        shipper = Shipper(store, spool, lambda first, end: keys.log_piece("main-0", first, end))
        output = OutputStream(spool, Masker([]), echo=shown.fileno())
        child = subprocess.Popen(f"yes '{LINE}' | head -c {SIZE}", shell=True, stdout=subprocess.PIPE)
        assert child.stdout is not None
        output.pump(os.dup(child.stdout.fileno())).join()
        child.wait()
        shipper.finish()
    took, cpu = time.monotonic() - began, used() - cpu
    pieces = list_pieces(store, keys.logs("main-0"), LOG)
    assert sum(size for _, size, _ in pieces) == SIZE
    print(f"{cpu:.2f} | {took:.1f} | {len(pieces)}")
    store.delete([key for _, _, key in pieces])


def main() -> int:
    if sys.argv[1:] == ["one"]:
        ship(os.environ["SLIPWAY_STORE"])
        return 0
    from tests.bench.checkouts import checkouts, measured
    from tests.support.s3 import ENVIRONMENT, running

    print(f"| a log of {SIZE / 1e9:g} GB | CPU s | s | objects |\n|---|---:|---:|---:|")
    with running() as server:
        os.environ |= {**ENVIRONMENT, "SLIPWAY_STORE": server.url(server.bucket())}
        for code, checkout in checkouts().items():
            print(f"| {code} | {measured(__file__, checkout)} |")
    cpu, sha, body = used(), hashlib.sha256(), bytes(8 << 20)
    for _ in range(SIZE // len(body)):
        sha.update(body)
    print(f"| sha256 alone | {used() - cpu:.2f} | | |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
