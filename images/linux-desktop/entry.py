"""The image's entrypoint: the runtime of a job, or a server of desktops for other programs.

`IMAGE openenv`, `mcp` or `ors`, with options of `python -m eval.serve`, serves on port 8000; notes in an editor where
no --config names other tasks. Anything else is for the runtime.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

PROTOCOLS = ("mcp", "openenv", "ors")
DEFAULTS = {"--config": "/opt/slipway/serve/notes.yaml", "--out": "served", "--listen": "0.0.0.0:8000"}
HELP = """
  openenv|mcp|ors ...  serve desktops, without a job: options of python -m eval.serve; the token is in $SERVE_TOKEN
usage of that: docker run -e SERVE_TOKEN -p 127.0.0.1:8000:8000 IMAGE openenv [--config FILE] ...
"""


def served(argv: Sequence[str]) -> list[str] | None:
    """The command line of the server; None where it is the runtime's."""
    if not argv or argv[0] not in PROTOCOLS:
        return None
    given = {word.partition("=")[0] for word in argv}
    return [*argv, *(word for name, value in DEFAULTS.items() if name not in given for word in (name, value))]


if __name__ == "__main__":
    if (arguments := served(sys.argv[1:])) is not None:
        from eval.serve.__main__ import main

        sys.exit(main(arguments))
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(HELP.strip("\n"), end="\n\n")
        sys.stdout.flush()
    runpy.run_module("launcher.runtime", run_name="__main__", alter_sys=True)
