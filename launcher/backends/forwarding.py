"""Listens on this machine's loopback and connects each caller to a port elsewhere: what `launcher forward` starts.

`python -m launcher.backends.forwarding HERE:THERE ... [-- COMMAND]` connects to the ports THERE of this machine's own
loopback. With a COMMAND, the command is started for each caller with the port as its last argument, and its standard
streams are the connection: `docker exec -i CONTAINER python -m launcher.runtime.relay` reaches what listens in a
container only.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from launcher.errors import SlipwayError
from launcher.runtime.relay import LOOPBACK, pass_on

Connect = Callable[[int, socket.socket], None]  # the port there, and a caller, whom it closes


def argv(pairs: Sequence[tuple[int, int]], command: Sequence[str] = ()) -> list[str]:
    """The argv of this program. `pairs`: (port here, port there)."""
    words = [f"{here}:{there}" for here, there in pairs]
    return [sys.executable, "-m", "launcher.backends.forwarding", *words, *(["--", *command] if command else [])]


def serve(pairs: Sequence[tuple[int, int]], connect: Connect) -> None:
    """Listens at (port here, port there), port 0 being any, and calls `connect` in a thread for each caller; never
    returns. Raises SlipwayError for a port that is taken."""
    listeners = {}
    for here, there in pairs:
        try:
            listeners[socket.create_server((LOOPBACK, here))] = there
        except OSError as error:
            raise SlipwayError(f"port {here}: {os.strerror(error.errno or 0)}") from None
    for listener, there in listeners.items():
        print(f"Forwarding from {LOOPBACK}:{listener.getsockname()[1]} -> {there}", flush=True)
    try:
        while True:
            for listener in select.select(list(listeners), [], [])[0]:
                caller = listener.accept()[0]
                threading.Thread(target=connect, args=(listeners[listener], caller), daemon=True).start()
    finally:
        for listener in listeners:
            listener.close()


def _direct(port: int, caller: socket.socket) -> None:
    with caller:
        try:
            there = socket.create_connection((LOOPBACK, port))
        except OSError as error:
            print(f"port {port}: {error.strerror}", file=sys.stderr, flush=True)
            return
        with there:
            pass_on([(caller.fileno(), there.fileno()), (there.fileno(), caller.fileno())])


def _by(command: Sequence[str]) -> Connect:
    def connect(port: int, caller: socket.socket) -> None:
        with caller:
            there = caller.fileno()
            subprocess.run([*command, str(port)], check=False, stdin=there, stdout=there)

    return connect


def main(words: Sequence[str]) -> int:
    split = list(words).index("--") if "--" in words else len(words)
    command = words[split + 1 :]
    pairs = [(int(here), int(there)) for here, _, there in (word.partition(":") for word in words[:split])]
    if not command:
        for port in [here for here, there in pairs if here == there]:
            print(f"{LOOPBACK}:{port} is a port of the run itself: nothing to forward", flush=True)
        pairs = [(here, there) for here, there in pairs if here != there]
    try:
        if pairs:
            serve(pairs, _by(command) if command else _direct)
    except SlipwayError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
