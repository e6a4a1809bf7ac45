"""Connections that a suspended machine has lost.

A laptop sleeps for an hour: routers on the way forget its connections, the servers close them, and nobody tells it. A
stream that waits for the next byte would wait for its time-out. Two clocks tell of the sleep: one counts it, one does
not.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from launcher.clock import boottime

LOOK: Final = 2.0  # seconds between two looks at the clocks
SLEPT: Final = 10.0  # seconds of sleep after which connections count as lost
# a dead connection is noticed after about 75 s without sleep too: a cable, another network, a router that forgets
PROBES: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 3}


def socket_options() -> list[tuple[int, int, int]]:
    """Options of TCP sockets: the kernel asks an idle other end whether it is there."""
    known = [(getattr(socket, name), value) for name, value in PROBES.items() if hasattr(socket, name)]
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *((socket.IPPROTO_TCP, name, value) for name, value in known),
    ]


def asleep() -> float:
    """Seconds for which this machine was suspended since a fixed moment."""
    return boottime() - time.monotonic()


class Streams:
    """The open streams of an Api. After a sleep each is cut, so that its reader opens another; `woken` is called."""

    def __init__(self, woken: Callable[[], None]) -> None:
        self._woken = woken
        self._open: WeakKeyDictionary[Any, float] = WeakKeyDictionary()  # -> `asleep` before its request was sent
        self._lock = threading.Lock()
        self._looking = False

    def add(self, response: Any, before: float) -> Any:
        with self._lock:
            self._open[response] = before
            if not self._looking:
                self._looking = True
                threading.Thread(target=self._look, daemon=True, name="waking").start()
        return response

    def _look(self) -> None:
        while True:
            time.sleep(LOOK)
            slept = asleep()
            with self._lock:
                streams = {response: before for response, before in self._open.items() if not response.closed}
                if not streams:
                    self._looking = False
                    return
                lost = [response for response, before in streams.items() if slept - before >= SLEPT]
                for response in lost:
                    del self._open[response]
            if lost:
                self._woken()
            for response in lost:
                cut(response)


def cut(response: Any) -> None:
    """Ends a stream from another thread: its reader gets an end or an error at once."""
    try:
        response.shutdown()
    except (OSError, RuntimeError, ValueError, AttributeError):
        return  # it has already ended
