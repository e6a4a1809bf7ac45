"""Starts keepers through the one fork server of this process (eval.desktops.keeping.fork_server)."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from eval.desktop import SetupFailed
from eval.desktops.keeping.fork_server import PACKET

ANSWER_S: Final = 60.0  # seconds in which it has to answer; the first answer takes as long as loading its modules


class ForkServer:
    """The process, and the socket to it."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(ANSWER_S)
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def send(self, order: bytes, descriptors: list[int]) -> bool:
        """Whether it gets the order: not where it has ended."""
        try:
            socket.send_fds(self._channel, [order], descriptors)
        except ConnectionError:
            return False
        return True

    def answer(self) -> dict[str, Any]:
        """What it says to an order. Raises OSError where it says nothing."""
        if not (packet := self._channel.recv(PACKET)):
            raise ConnectionResetError("it ended")
        answer: dict[str, Any] = json.loads(packet)
        return answer

    def forget(self) -> None:
        """Closes the socket: of a process that was forked, it is not its own."""
        self._channel.close()

    def end(self) -> None:
        """Ends it; keepers go on."""
        self._channel.close()
        self._process.kill()
        self._process.wait()


_lock = threading.Lock()
_server: ForkServer | None = None


def start(command: Sequence[str], order: Mapping[str, Any], descriptors: list[int]) -> int:
    """A new keeper for `order`; its process id. `command`: of the fork server. `descriptors`: what it reads orders from
    and writes to, its standard error, what a debugged browser speaks on. Raises SetupFailed."""
    global _server
    packet = json.dumps(order).encode()
    with _lock:
        try:
            if _server is None or _server.command != command or not _server.send(packet, descriptors):
                _end()
                _server = ForkServer(command)
                _server.send(packet, descriptors)
            answer = _server.answer()
        except OSError as error:  # it may have started a keeper, which ends when its socket closes
            _end()
            raise SetupFailed(f"the desktop did not start: the process that starts keepers: {error}") from None
    if "failed" in answer:
        raise SetupFailed(f"the desktop did not start: {answer['failed']}")
    return int(answer["keeper"])


def _end() -> None:
    global _server
    server, _server = _server, None
    if server is not None:
        server.end()


def _forget() -> None:
    global _server, _lock
    server, _server = _server, None
    _lock = threading.Lock()
    if server is not None:
        server.forget()


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)
