"""Tells the user what the launcher waits for: a store that has not answered yet, machines that a backend makes or ends.

The command line sets `say`; a runtime or a supervisor does not, so it prints nothing. `begin` registers a call to a
store and `end` removes it. A separate thread reports a call that has had no answer for AFTER seconds, once for each
store. `LongWait` is for who looks again and again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

AFTER: Final = 1.5  # seconds; with the time that a verb takes to start, the message appears within two

AGAIN: Final = 600.0  # seconds after which a wait is told again, though nothing has changed

say: Callable[[str], None] | None = None
before: Callable[[], None] | None = None  # called once, before the first line of a `LongWait`


class Call:
    """One call to a store; `fault` is the error of its last try."""

    def __init__(self, url: str, deadline: float) -> None:
        self.url = url
        self.deadline = deadline
        self.began = time.monotonic()
        self.fault = ""


class LongWait:
    """What one part of a verb waits for."""

    def __init__(self) -> None:
        self._told, self._at = "", 0.0

    def tell(self, text: str) -> None:
        """Says it if it is news, or was last said long ago."""
        global before
        now = time.monotonic()
        if say is None or (text == self._told and now - self._at < AGAIN):
            return
        self._told, self._at = text, now
        first, before = before, None
        if first is not None:
            first()
        say(text)


class _Watch:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: dict[int, Call] = {}
        self._told: set[str] = set()
        self._thread: threading.Thread | None = None

    def enter(self, call: Call) -> None:
        with self._changed:
            if call.url in self._told:
                return
            self._calls[id(call)] = call
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="patience", daemon=True)
                self._thread.start()
            elif len(self._calls) == 1:
                self._changed.notify()

    def leave(self, call: Call) -> None:
        with self._changed:
            self._calls.pop(id(call), None)

    def _watch(self) -> None:
        with self._changed:
            while True:
                # calls are in the order of their start
                oldest = next(iter(self._calls.values()), None)
                left = None if oldest is None else oldest.began + AFTER - time.monotonic()
                if oldest is None or left is None:
                    self._changed.wait()
                elif left > 0:
                    self._changed.wait(left)
                else:
                    self._told.add(oldest.url)
                    self._calls = {key: call for key, call in self._calls.items() if call.url != oldest.url}
                    if say is not None:
                        say(_words(oldest))


def _words(call: Call) -> str:
    if call.fault:
        return f"store {call.url} does not answer: {call.fault}; trying for {call.deadline:.0f} s"
    return f"store {call.url} has not answered for {AFTER:g} s; waiting up to {call.deadline:.0f} s"


_watch = _Watch()


def begin(url: str, deadline: float) -> Call | None:
    """Registers a call that may take up to `deadline` seconds; None if `say` is not set."""
    if say is None:
        return None
    call = Call(url, deadline)
    _watch.enter(call)
    return call


def end(call: Call | None) -> None:
    if call is not None:
        _watch.leave(call)
