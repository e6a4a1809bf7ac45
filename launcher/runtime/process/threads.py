"""Threads that no exception may end. A runtime with a dead thread is worse than a dead runtime: without heartbeats the
next attempt starts while this one still computes, without the fence nothing stops it, without the shipper its log
ends."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

from launcher.errors import SlipwayError

_PAUSE: Final = 0.5  # seconds after a round that failed


class ResilientThread(threading.Thread):
    """Calls `step` until it returns False. An exception, MemoryError included, is reported once, and the next call
    follows `pause` seconds later."""

    def __init__(
        self, name: str, step: Callable[[], bool], say: Callable[[str], object], *, pause: float = _PAUSE
    ) -> None:
        super().__init__(name=f"slipway-{name}", daemon=True)
        self._step, self._pause = step, pause
        self._teller = ErrorReporter(say)

    def run(self) -> None:
        going = True
        while going:
            try:
                going = self._step()
            except BaseException as error:
                self._teller.tell(error)
                with contextlib.suppress(BaseException):
                    time.sleep(self._pause)


class ErrorReporter:
    """Reports errors; the same error several times in a row only once. Never raises: there may be no memory left."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say, self._said = say, ""

    def tell(self, error: BaseException) -> None:
        with contextlib.suppress(BaseException):
            text = str(error) if isinstance(error, SlipwayError) else f"{type(error).__name__}: {error}"
            if text == self._said:
                return
            self._said = text
            if isinstance(error, SlipwayError):
                self._say(f"store: {text}")
            else:
                self._say(f"a thread of the runtime continues after {text}")
                self._say("".join(traceback.format_exception(error)))

    def well(self) -> None:
        """The last round succeeded, so the same error would be reported again."""
        self._said = ""
