"""The image's entrypoint: the runtime of a job, or a server of its own.

`IMAGE --model X ...` serves as vLLM's own image does, with any option of vLLM's server, and with the readiness check
and the orderly end of `python -m serve`. Anything else is for the runtime.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

HELP = """
  --model X ...  serve the model X, without a job: vLLM's own options, port 8000; ready: see /ready on port 9000
usage of that: docker run ... IMAGE --model X [--served-model-name N] [--port P] ...
"""


def serves(argv: Sequence[str]) -> bool:
    """Is this a command line for the server?"""
    return any(word.partition("=")[0] in ("--model", "--config", "--healthcheck") for word in argv)


if __name__ == "__main__":
    if serves(sys.argv[1:]):
        from serve import main

        from launcher.runtime.process.driver import too_old

        if line := too_old(os.environ):
            print(f"[serve] {line}", file=sys.stderr, flush=True)

        sys.exit(main(sys.argv[1:]))
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(HELP.strip("\n"), end="\n\n")
        sys.stdout.flush()
    runpy.run_module("launcher.runtime", run_name="__main__", alter_sys=True)
