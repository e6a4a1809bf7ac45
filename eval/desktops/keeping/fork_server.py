"""Starts keepers as forks of one process that has loaded what they need: they start at once, and share its memory.

It reads packets from its standard input, a socket: each is the order of a keeper as JSON, with three descriptors: what
the keeper reads orders from and writes to, its standard error, and what a debugged browser speaks on. It answers with
the keeper's process id. It ends when the socket closes; the keepers go on.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from typing import Any, Final

from eval.desktops.keeping.keeper import Keeper, Order

PACKET: Final = 128 << 10
DESCRIPTORS: Final = 3


def _reap(*_: Any) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _keep(packet: bytes, channel: socket.socket, descriptors: list[int]) -> int:
    """In the child: the keeper, from its start to its end. The exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    channel.close()
    orders, trouble, browser = descriptors
    for source, target in ((orders, 0), (orders, 1), (trouble, 2)):
        os.dup2(source, target)
    os.close(orders)
    os.close(trouble)
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(packet).items()
    }
    return Keeper(Order(**values, browser=browser)).run()


def main() -> int:
    """Serves until the socket closes."""
    os.umask(0o022)  # the desktop's user reads some of what is written here; what is secret has a mode of its own
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for whoever started us
    signal.signal(signal.SIGCHLD, _reap)
    channel = socket.socket(fileno=0)
    gc.collect()
    gc.freeze()  # so that no collection in a keeper writes to the memory that it shares
    while True:
        packet, descriptors, _, _ = socket.recv_fds(channel, PACKET, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            return 0
        try:
            keeper = os.fork()
        except OSError as error:
            keeper = -1
            answer = {"failed": f"fork: {error.strerror}"}
        if keeper == 0:
            status = 1
            try:
                status = _keep(packet, channel, descriptors)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps({"keeper": keeper} if keeper > 0 else answer).encode())
