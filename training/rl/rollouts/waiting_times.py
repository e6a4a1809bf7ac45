"""Who waits for whom while rollouts run: the model for questions, the desktops for answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class WaitingTimes:
    """Seconds since the rollouts began: in all, in which the model was asked, and of all rollouts together, in all and
    those in which they waited for the model."""

    wall: float = 0.0
    asked: float = 0.0
    rollouts: float = 0.0
    waiting: float = 0.0

    def since(self, then: WaitingTimes) -> dict[str, float]:
        """Shares of the time after `then`: model_idle, in which nobody asked the model, and desktop_idle, in which a
        rollout waited for it."""
        told = {}
        if self.wall > then.wall:
            told["model_idle"] = 1 - (self.asked - then.asked) / (self.wall - then.wall)
        if self.rollouts > then.rollouts:
            told["desktop_idle"] = (self.waiting - then.waiting) / (self.rollouts - then.rollouts)
        return told


class WaitingClock:
    """Measures them. `clock`: gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.last = clock()
        self.open = self.asking = 0
        self.times = [0.0, 0.0, 0.0, 0.0]

    def read(self) -> WaitingTimes:
        now = self.clock()
        passed, self.last = now - self.last, now
        for place, many in enumerate((1, bool(self.asking), self.open, self.asking)):
            self.times[place] += passed * many
        return WaitingTimes(*self.times)

    @contextmanager
    def rollout(self) -> Iterator[None]:
        """While a rollout runs."""
        self.read()
        self.open += 1
        try:
            yield
        finally:
            self.read()
            self.open -= 1

    @contextmanager
    def ask(self) -> Iterator[None]:
        """While it waits for the model."""
        self.read()
        self.asking += 1
        try:
            yield
        finally:
            self.read()
            self.asking -= 1
