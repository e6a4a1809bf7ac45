"""Calls in parallel, for verbs that mostly have one run: then no thread starts, and nothing is imported for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

R = TypeVar("R")


class Threads:
    """At most `most` calls at once. Its threads start with the first two calls that may run side by side."""

    def __init__(self, most: int, name: str = "launcher") -> None:
        self._most, self._name = most, name
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def map(self, call: Callable[..., R], *items: Any) -> Iterator[R]:
        """The answers in the order of the items, as `concurrent.futures.Executor.map` gives them: all calls are made,
        whether or not the answers are read."""
        calls = list(zip(*items, strict=False))
        if len(calls) < 2:
            return iter([call(*each) for each in calls])
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # it loads logging: 5 ms

            self._pool = ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
        return self._pool.map(call, *zip(*calls, strict=True))
