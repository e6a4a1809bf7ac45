"""Waiting for what has to happen. How long a machine takes for it is no test's business: pytest's own timeout ends a
test that waits for what never comes, and `HANGS` is a little shorter, so that the test can say what it waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

HANGS: Final = 240.0  # seconds


def until(
    condition: Callable[[], T], explain: Callable[[], object] = lambda: "it did not happen", hangs: float = HANGS
) -> T:
    """The condition's first true value. `hangs`: seconds after which it will not come."""
    end = time.monotonic() + hangs
    while not (found := condition()):
        assert time.monotonic() < end, explain()
        time.sleep(0.01)
    return found
