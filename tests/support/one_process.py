"""Tests of one process that do not sleep: what tests/unit and tests/contract promise.

Their conftest.py imports the two hooks: then a test there, fixtures of every scope included, that starts a process,
listens on a socket or sleeps fails, even where the product catches the error."""

from __future__ import annotations

import asyncio
import multiprocessing.util
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

SLEEP: Final = 0.05  # seconds
WHERE: Final = "tests/unit and tests/contract are one process that does not sleep; this belongs in tests/integration"
LOADER: Final = "/sbin/ldconfig"
STARTS: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})


class NotOneProcess(AssertionError):
    """A test of tests/unit or tests/contract did what only a test of tests/integration may do."""


@dataclass
class Watch:
    """What the test that runs did. Threads that an earlier test left behind are not its own."""

    others: frozenset[threading.Thread]
    found: list[NotOneProcess] = field(default_factory=list)

    def refuse(self, what: str) -> None:
        if threading.current_thread() in self.others:
            return
        self.found.append(NotOneProcess(f"{what}: {WHERE}"))
        raise self.found[-1]


_watch: Watch | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    # torch asks the loader for its libraries when it is first imported, which is in whichever test comes first
    if _watch is not None and event in STARTS and LOADER not in map(str, arguments[:1]):
        _watch.refuse(f"{event}{arguments[:2]}")


def _before(module: Any, name: str, refused: Callable[..., str | None]) -> None:
    """Let `module.name` ask `refused`, which gets its arguments, before each call."""
    original = getattr(module, name)

    def asking(*arguments: Any, **options: Any) -> Any:
        if _watch is not None and (what := refused(*arguments, **options)):
            _watch.refuse(what)
        return original(*arguments, **options)

    setattr(module, name, asking)


platform.processor()  # libraries ask for it, the first time by a process: before any test
sys.addaudithook(_audit)
_before(multiprocessing.util, "spawnv_passfds", lambda path, *_: f"a process of multiprocessing, {path!r}")
_before(socket.socket, "listen", lambda sock, *_: f"listen on {sock.getsockname()}")
_before(time, "sleep", lambda seconds: f"time.sleep({seconds})" if seconds > SLEEP else None)
_before(asyncio, "sleep", lambda delay, result=None: f"asyncio.sleep({delay})" if delay > SLEEP else None)


def _watched() -> Generator[None, Any, Any]:
    global _watch
    watch = _watch = Watch(frozenset(threading.enumerate()) - {threading.current_thread()})
    try:
        result = yield
    except BaseException as error:
        if watch.found and error is not watch.found[0]:
            raise watch.found[0] from error
        raise
    finally:
        _watch = None
    if watch.found:
        raise watch.found[0]
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    return (yield from _watched())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    return (yield from _watched())
