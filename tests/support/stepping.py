"""Many processes in one, in virtual time: each is a thread, one runs at a time, and all waiting is jumped over.

A process gives way at each request and each sleep, which is where others may run and where it may be killed: whatever
it does afterwards (`finally` included) raises Killed, because nothing of a killed process reaches the world.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any


class Killed(BaseException):
    """kill -9."""


class Process:
    """`main` ends the process with any exception; `error` keeps those that are neither Killed nor None."""

    def __init__(self, stepper: Stepper, name: str, main: Callable[[], None]) -> None:
        self.stepper, self.name, self.main = stepper, name, main
        self.dead = self.ended = self.killed = False
        self.error: BaseException | None = None
        self._turn = threading.Lock()
        self._turn.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.dead:
                self.main()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.dead = self.ended = True
        self.stepper._turn.release()

    def resume(self) -> None:
        """Lets it run until it waits or ends. Called by the stepper."""
        if self.ended:
            return
        before, self.stepper.current = self.stepper.current, self
        self._turn.release()
        self.stepper._turn.acquire()
        self.stepper.current = before

    def wait(self, seconds: float) -> None:
        """Called by the process itself. Raises Killed."""
        if self.dead:
            raise Killed
        self.stepper.after(seconds, self.resume)
        self.stepper._turn.release()
        self._turn.acquire()
        if self.dead:
            raise Killed

    def kill(self) -> None:
        """Called by the process itself: it ends here."""
        self.dead = self.killed = True
        raise Killed

    def finish(self) -> None:
        """Ends the thread."""
        self.dead = True
        self.resume()
        self._thread.join()


class Stepper:
    """Virtual time, and what happens in it. `now`: seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.current: Process | None = None
        self.processes: list[Process] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._turn = threading.Lock()
        self._turn.acquire()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + max(0.0, seconds), self._count, action))

    def start(self, name: str, main: Callable[[], None], *, after: float = 0.0) -> Process:
        process = Process(self, name, main)
        self.processes.append(process)
        self.after(after, process.resume)
        return process

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until

    def close(self) -> None:
        for process in self.processes:
            if not process.ended:
                process.finish()

    # what stands in for the module `time`, and for launcher.clock

    def sleep(self, seconds: float) -> None:
        assert self.current is not None
        self.current.wait(seconds)

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


class InTurn:
    """What stands in for ThreadPoolExecutor and launcher.parallel.Threads: one call after another, in one thread."""

    def __init__(self, *arguments: object, **options: object) -> None:
        pass

    def __enter__(self) -> InTurn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def map(self, call: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        return iter([call(*each) for each in zip(*items, strict=False)])
