"""Whether real processes sleep, as the kernel tells it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eval.benchmarks.osworld import served
from eval.benchmarks.osworld.served import ServedDesktop
from eval.desktops.client.transport import Transport
from eval.desktops.display.program_sleep import ServedTime, SleepWatch
from tests.support.waiting import until

WAITS = {
    "for its input": "sys.stdin.read()",
    "for a child that sleeps": "subprocess.run(['sleep', '1000'])",
    "in poll, for long": "p = select.poll(); p.register(0); p.poll(1000000)",
    "in poll, for ever": "p = select.poll(); p.register(0); p.poll()",
    "in select, for long": "select.select([0], [], [], 1000)",
    "in epoll, for long": "e = select.epoll(); e.register(0); e.poll(1000)",
    "for a lock, for long": "l = threading.Lock(); l.acquire(); l.acquire(timeout=1000)",
    "in nanosleep, for long": "time.sleep(1000)",
    "with a thread that waits": "threading.Thread(target=time.sleep, args=(1000,)).start(); sys.stdin.read()",
}
WORKS = {
    "for its next frame, in poll": "p = select.poll(); p.register(0)\nwhile True: p.poll(10)",
    "for its next frame, in select": "while True: select.select([0], [], [], 0.01)",
    "for its next frame, in epoll": "e = select.epoll(); e.register(0)\nwhile True: e.poll(0.01)",
    "for its next frame, in nanosleep": "while True: time.sleep(0.01)",
    "for a lock, for its next frame": "l = threading.Lock(); l.acquire()\nwhile True: l.acquire(timeout=0.01)",
    "on something": "while True: pass",
    "in a thread": "threading.Thread(target=exec, args=('while True: pass',)).start(); sys.stdin.read()",
    "in a child": "subprocess.run([sys.executable, '-c', 'while True: pass'])",
}


@contextmanager
def python(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has begun the code; its session ends with it."""
    command = f"import os, select, subprocess, sys, threading, time\nos.write(1, b'!')\n{code}"
    with subprocess.Popen(
        [sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.read(1) == b"!"
            yield process
        finally:
            os.killpg(process.pid, 9)


@pytest.mark.parametrize("how", WAITS)
def test_a_program_that_waits(how: str) -> None:
    with python(WAITS[how]) as process:
        watch = SleepWatch(lambda: [process.pid])
        assert watch.works
        until(watch.asleep)


@pytest.mark.parametrize("how", WORKS)
def test_a_program_that_works_or_wakes_soon(how: str) -> None:
    with python(WORKS[how]) as process:
        watch = SleepWatch(lambda: [process.pid])
        assert watch.works
        if "child" in how:
            until(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_bytes)
        assert not any(watch.asleep() for _ in range(300))


@pytest.mark.parametrize("how", WORKS)
def test_who_waits_for_the_next_frame_has_read_what_came(how: str) -> None:
    with python(WORKS[how]) as process:
        watch = SleepWatch(lambda: [process.pid])
        if "child" in how:
            until(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_bytes)
        if "frame" in how:
            until(lambda: watch.asleep(0.0))
        else:
            assert not any(watch.asleep(0.0) for _ in range(300))


def test_one_of_two_that_works() -> None:
    with python(WAITS["for its input"]) as waiting, python(WORKS["on something"]) as working:
        assert not SleepWatch(lambda: [waiting.pid, working.pid]).asleep()
        until(SleepWatch(lambda: [waiting.pid]).asleep)


def test_what_runs_between_the_two_looks_was_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    with python("while True: sys.stdin.buffer.raw.read(1); os.write(1, b'.')") as process:
        watch = SleepWatch(lambda: [process.pid])
        until(watch.asleep)
        look, looks = watch._look, 0

        def and_wake(soon_s: float) -> dict[int, bytes]:
            nonlocal looks
            found, looks = look(soon_s), looks + 1
            if looks == 1:
                assert process.stdin
                assert process.stdout
                os.write(process.stdin.fileno(), b"x")
                assert process.stdout.read(1) == b"."
                until(SleepWatch(lambda: [process.pid]).asleep)
            return found

        monkeypatch.setattr(watch, "_look", and_wake)
        assert not watch.asleep()
        assert watch.asleep()


def test_a_process_that_is_gone() -> None:
    with python("sys.stdin.read()") as process:
        watch = SleepWatch(lambda: [process.pid])
    assert not watch.asleep()
    assert watch.works


def test_a_kernel_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> bytes:
        raise PermissionError(path)

    monkeypatch.setattr("eval.desktops.display.program_sleep._read", refused)
    watch = SleepWatch(lambda: [os.getpid()])
    assert watch.asleep() is None
    assert not watch.works


def test_time_of_programs_that_sleep_counts_in_full() -> None:
    with python(WAITS["for its input"]) as process:
        watch = SleepWatch(lambda: [process.pid])
        until(watch.asleep)
        began = time.monotonic()
        served = ServedTime(watch)
        until(lambda: served.seconds() > 0.2)
        assert served.seconds() <= time.monotonic() - began


def test_time_in_which_a_program_waits_for_a_processor_does_not_count() -> None:
    """Several share one processor: each of them waits for most of the time, together for longer than passes."""
    one = min(os.sched_getaffinity(0))
    code = f"os.sched_setaffinity(0, [{one}])\nfor _ in range(4): os.fork()\nos.write(1, b'!')\nwhile True: pass"
    with python(code) as process:
        assert process.stdout
        assert process.stdout.read(16) == b"!" * 16
        watch = SleepWatch(lambda: [process.pid])
        before = sum(watch.queued().values())
        served = ServedTime(watch)
        until(lambda: sum(watch.queued().values()) - before > 3e9)  # 16 of them, so after some .2 s
        assert served.seconds() == 0.0


def test_who_sleeps_waits_for_no_processor() -> None:
    with python(WAITS["for its input"]) as process:
        watch = SleepWatch(lambda: [process.pid])
        until(watch.asleep)
        waited = watch.processor_wait()
        time.sleep(0.05)
        assert waited() == 0.0


def test_who_shares_a_processor_waits_for_it() -> None:
    """16 of them: the one that waits longest has it for a sixteenth of the time at most."""
    one = min(os.sched_getaffinity(0))
    code = f"os.sched_setaffinity(0, [{one}])\nfor _ in range(4): os.fork()\nos.write(1, b'!')\nwhile True: pass"
    with python(code) as process:
        assert process.stdout
        assert process.stdout.read(16) == b"!" * 16
        waited, began = SleepWatch(lambda: [process.pid]).processor_wait(), time.monotonic()
        time.sleep(0.1)
        found = waited()
        assert 0.05 < found <= time.monotonic() - began
        assert waited() < found


def test_a_judge_waits_for_as_long_as_programs_wait_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a set-up or a judgement (osworld) is no matter of how busy the machine is."""
    monkeypatch.setattr(served, "REST_S", 0.01)
    monkeypatch.setattr(served, "POLL_S", 0.0)
    looks = 0

    async def asleep() -> bool:
        nonlocal looks
        looks += 1
        return looks > 200

    async def nothing() -> None:
        return None

    def looked(spent: float) -> int:
        nonlocal looks
        looks = 0
        desktop = ServedDesktop("", None, (1, 1), Transport("http://h"), nothing, asleep, lambda: lambda: spent)
        asyncio.run(desktop.rest())
        return looks

    assert looked(served.REST_LIMIT_S - 1) > 200
    assert looked(served.REST_LIMIT_S) == 0  # they had their time
