"""python -m launcher.runtime: the entrypoint of every image."""

from __future__ import annotations

import os
import sys
from typing import Final

MARK: Final = "--mark="  # whose runtime it is; read by nobody but `ps` and launcher.runtime.process.procs
HELP = """\
usage: docker run ... IMAGE [run | --help]

The runtime of a Slipway job: claims an attempt of a run, fetches its inputs, runs its command, keeps logs, metrics,
checkpoints and outputs flowing into the store. A backend starts it (`launcher submit`) and tells it what to do by
environment variables, SLIPWAY_STORE and SLIPWAY_RUN first; docs/reference/runtime.md lists what the command finds.

  run      the same as no argument at all, for engines that would add the image's default `--help`
  --help   this text; also printed when an image is started without arguments

To look inside: docker run --rm -it --entrypoint bash IMAGE
What it contains: /opt/slipway/sbom.cdx.json and /opt/slipway/licences.txt
"""


def main(argv: list[str]) -> int:
    if argv in (["--help"], ["-h"]):
        print(HELP, end="")
        return 0
    given = [word for word in argv if not word.startswith(MARK)]
    if given not in ([], ["run"]):
        print(f"[slipway] the runtime takes no `{' '.join(argv)}`; --help says what it does", file=sys.stderr)
        return 78
    from launcher.msgspec_import import load_msgspec

    load_msgspec()
    from launcher.runtime.secrets.credentials import adopt_private, cannot_be_read

    cannot_be_read()
    adopt_private(os.environ)
    if os.environ.get("SLIPWAY_SECRETS") or os.environ.get("SLIPWAY_STORE_SECRETS"):
        from launcher.runtime.secrets.fetch import fetch_secrets

        fetch_secrets(os.environ)
    from launcher.runtime.run import main as run

    return run(os.environ)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # threads that hang in the network must not hold the container
