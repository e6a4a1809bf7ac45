"""Calls in parallel, for verbs that mostly have one run: then no thread starts, and nothing is imported for it.

The threads are our own: `concurrent.futures` loads logging, a twentieth of what a verb or the supervisor loads.
"""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from threading import Thread

R = TypeVar("R")


class PendingCall(Generic[R]):
    """A call that some thread makes, once. `dropped`: nobody wants its answer any more, so it need not be made."""

    def __init__(self, call: Callable[..., R], *arguments: Any) -> None:
        self._call, self._arguments = call, arguments
        self._made = allocate_lock()
        self._made.acquire()
        self._answer: R | None = None
        self._error: BaseException | None = None
        self.dropped = False

    def make(self) -> None:
        try:
            if not self.dropped:
                self._answer = self._call(*self._arguments)
        except BaseException as error:  # it is raised where the answer is wanted
            self._error = error
        finally:
            self._made.release()

    @property
    def done(self) -> bool:
        return not self._made.locked()

    def answer(self) -> R:
        """Waits for the answer. Raises what the call raised."""
        with self._made:
            if self._error is not None:
                raise self._error
            return self._answer  # type: ignore[return-value]


class Threads:
    """At most `most` calls at once. Its threads start with the first calls that may run side by side."""

    def __init__(self, most: int, name: str = "launcher") -> None:
        self._most, self._name = most, name
        self._calls: SimpleQueue[PendingCall[Any] | None] = SimpleQueue()
        self._threads: list[Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Waits for every call that was not dropped."""
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def map(self, call: Callable[..., R], *items: Any) -> Iterator[R]:
        """The answers in the order of the items. All calls are made, whether or not the answers are read; those after
        one that failed, or after the last that was read, need not be."""
        calls = list(zip(*items, strict=False))
        if len(calls) < 2:
            return iter([call(*each) for each in calls])
        made = [PendingCall(call, *each) for each in calls]
        for each in made:
            self._give(each)
        return _answers(made)

    def start(self, call: Callable[[], R]) -> PendingCall[R]:
        """Makes a call in a thread, also where it is the only one."""
        started = PendingCall(call)
        self._give(started)
        return started

    def leave(self) -> None:
        """Makes no call any more that no thread has begun, and waits for none."""
        with suppress(Empty):
            while True:
                self._calls.get_nowait()
        for _ in self._threads:
            self._calls.put(None)

    def _give(self, call: PendingCall[Any]) -> None:
        self._calls.put(call)
        if len(self._threads) < self._most:
            from threading import Thread

            thread = Thread(target=self._work, name=f"{self._name}_{len(self._threads)}")
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make()
            del call  # it holds what it was called with, and its answer


def _answers(calls: list[PendingCall[R]]) -> Iterator[R]:
    calls.reverse()
    try:
        while calls:
            yield calls.pop().answer()  # which is not kept
    finally:
        for call in calls:
            call.dropped = True
