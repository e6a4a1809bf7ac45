"""python -m tests.fakes.lambda_cloud FOLDER KEY SPEED [PYTHON]: serves until its standard input ends, and prints its
port first. PYTHON: the program that stands in for an image's `python`; without it instances run nothing."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from tests.fakes.lambda_cloud.server import LambdaServer


def main(folder: str, key: str, speed: str, *program: str) -> None:
    environ = {"FAKE_PYTHON": program[0], "HOME": folder} if program else None
    for name in ("PYTHONPATH", "SLIPWAY_TUNING"):
        if environ is not None and name in os.environ:
            environ[name] = os.environ[name]
    server = LambdaServer(0, key, float(speed), Path(folder), environ)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    server.shutdown()
    server.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
