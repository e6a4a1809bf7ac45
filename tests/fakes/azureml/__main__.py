"""python -m tests.fakes.azureml FOLDER SPEED [PYTHON]: serves until its standard input ends, and prints its port first.
PYTHON: the program that stands in for an image's `python`; without it jobs run nothing."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from tests.fakes.azureml.server import AzureServer


def main(folder: str, speed: str, *program: str) -> None:
    environ = {name: os.environ[name] for name in ("PYTHONPATH", "SLIPWAY_TUNING") if name in os.environ}
    server = AzureServer(Path(folder), float(speed), Path(program[0]) if program else None, environ)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    server.shutdown()
    server.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
