"""What the programs of serving images share: their command line, and how the image's HEALTHCHECK finds them.

`PROGRAM --config FILE` serves until SIGTERM. Meanwhile a file names the address at which it says whether it is ready;
`PROGRAM --healthcheck`, in the same container, asks there.
"""

from __future__ import annotations

import argparse
import os
import socket
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from eval import config as configuration
from eval.config import Config

# the same for every process of a container; elsewhere, where several may serve, the variable tells them apart
STATE: Final = Path(os.environ.get("SLIPWAY_READY_FILE") or "/tmp/slipway-ready")
C = TypeVar("C", bound=Config)


def free_port() -> int:
    """A TCP port that nobody has at the moment."""
    with socket.create_server(("", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def ready_at(port: int) -> Iterator[None]:
    """For as long as the context lasts, a health check asks http://127.0.0.1:port/ready, never half of that."""
    temporary = STATE.with_name(f"{STATE.name}.{os.getpid()}")
    temporary.write_text(f"http://127.0.0.1:{port}/ready", encoding="utf-8")
    temporary.replace(STATE)
    try:
        yield
    finally:
        STATE.unlink(missing_ok=True)


def healthcheck() -> int:
    """0 when the program of this container is ready for requests."""
    try:
        with urllib.request.urlopen(STATE.read_text(encoding="utf-8"), timeout=10) as response:
            return 0 if response.status == 200 else 1
    except OSError as error:
        print(f"not ready: {error}")
        return 1


def main(
    program: str, description: str, kind: type[C], serve: Callable[[C], int], argv: Sequence[str] | None = None
) -> int:
    """Serves what a configuration file says, or checks; the exit code. A bad configuration is 78, with one line."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", help=f"a JSON or YAML file, see {kind.__module__}.{kind.__name__}")
    what.add_argument("--healthcheck", action="store_true", help="is the program of this container ready?")
    arguments = parser.parse_args(argv)
    if arguments.healthcheck:
        return healthcheck()
    return configuration.run(lambda: serve(configuration.load(Path(arguments.config), kind)))
