"""Connects standard input and output with a port of this machine's loopback: `python -m launcher.runtime.relay PORT`.

`launcher forward` starts it in a container, beside the run's command, for one connection.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Sequence
from typing import Final

LOOPBACK: Final = "127.0.0.1"
CHUNK: Final = 1 << 16


def pass_on(ways: Sequence[tuple[int, int]]) -> None:
    """Passes bytes from the first to the second descriptor of each way, until one of them ends or breaks."""
    target = dict(ways)
    while True:
        for source in select.select(list(target), [], [])[0]:
            try:
                data = os.read(source, CHUNK)
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(target[source], rest) :]
            except OSError:
                return
            if not data:
                return


def main(words: Sequence[str]) -> int:
    try:
        there = socket.create_connection((LOOPBACK, int(words[0])))
    except OSError as error:
        print(f"port {words[0]}: {error.strerror}", file=sys.stderr)
        return 1
    with there:
        pass_on([(0, there.fileno()), (there.fileno(), 1)])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
