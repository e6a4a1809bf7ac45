"""python -m launcher.runtime: the entrypoint of every image."""

from __future__ import annotations

import os
import sys

from launcher.runtime.run import main

if __name__ == "__main__":
    code = main(os.environ)
    sys.stdout.flush()
    os._exit(code)  # threads that hang in the network must not hold the container
