"""Requests to a store that may not be reachable for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from launcher.errors import Unreachable
from launcher.runtime.beating import Clock

T = TypeVar("T")


class Retrier:
    """Repeats a request while the store cannot be reached, for up to `patience` seconds or until `interrupted` is set;
    then raises Unreachable. `trouble` is called with each error, and with "" when the store answers again."""

    def __init__(
        self,
        clock: Clock,
        patience: float,
        poll: float,
        interrupted: threading.Event,
        log: Callable[[str], None],
        trouble: Callable[[str], None],
    ) -> None:
        self._clock, self._patience, self._poll, self._interrupted = clock, patience, poll, interrupted
        self._log, self.trouble = log, trouble

    def __call__(self, ask: Callable[[], T]) -> T:
        since = self._clock.boottime()
        failed = False
        while True:
            try:
                answer = ask()
                if failed:
                    self.trouble("")
                return answer
            except Unreachable as error:
                failed = True
                self.trouble(str(error))
                if self._clock.boottime() - since > self._patience or self._interrupted.is_set():
                    raise
                self._log(f"store: {error}")
                self._clock.wait(self._interrupted, self._poll)
