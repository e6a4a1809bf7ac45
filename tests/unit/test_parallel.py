"""Calls in parallel: their order, their failures, how many there are at once, and which are not made."""

from __future__ import annotations

import threading

import pytest

from launcher.parallel import Threads


def test_answers_come_in_the_order_of_the_items() -> None:
    last = threading.Event()

    def call(number: int, word: str) -> str:
        if number == 3:
            last.set()
        else:
            assert last.wait(30)  # the last item is done first
        return f"{number}{word}"

    with Threads(4) as threads:
        assert list(threads.map(call, range(4), "abcd")) == ["0a", "1b", "2c", "3d"]
        assert list(threads.map(call, [3], "z")) == ["3z"]
        assert list(threads.map(call, [], "")) == []


def test_no_more_than_so_many_at_once() -> None:
    lock, now, most = threading.Lock(), 0, 0
    both = threading.Barrier(2)

    def call(number: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        both.wait(30)
        with lock:
            now -= 1

    with Threads(2) as threads:
        list(threads.map(call, range(10)))
    assert most == 2


def test_one_item_starts_no_thread() -> None:
    with Threads(4) as threads:
        assert list(threads.map(lambda number: threading.current_thread(), [1])) == [threading.main_thread()]


def test_a_failure_is_raised_at_its_place_and_the_calls_after_it_are_not_made() -> None:
    made: list[int] = []
    raised = threading.Event()

    def call(number: int) -> int:
        assert number < 2 or raised.wait(30)
        made.append(number)
        if number == 1:
            raise ValueError("one")
        return number

    with Threads(1) as threads:
        answers = threads.map(call, range(1000))
        assert next(answers) == 0
        with pytest.raises(ValueError, match="one"):
            next(answers)
        raised.set()
    assert made in ([0, 1], [0, 1, 2])  # the thread may have begun the next one


def test_all_calls_are_made_though_nobody_reads_their_answers() -> None:
    made: list[int] = []
    with Threads(3) as threads:
        threads.map(made.append, range(50))
    assert sorted(made) == list(range(50))


def test_a_call_that_is_started_alone() -> None:
    go = threading.Event()
    with Threads(1) as threads:
        call = threads.start(lambda: go.wait(30))
        assert not call.done
        go.set()
        assert call.answer() is True
        assert call.done

        def fails() -> None:
            raise ValueError("it fails")

        failed = threads.start(fails)
        with pytest.raises(ValueError, match="it fails"):
            failed.answer()
        assert threads.start(lambda: 7).answer() == 7  # the thread goes on


def test_who_leaves_waits_for_nothing_and_begins_nothing() -> None:
    begun, go, made = threading.Event(), threading.Event(), list[int]()

    def first() -> None:
        begun.set()
        assert go.wait(30)
        made.append(1)

    threads = Threads(1)
    call = threads.start(first)
    assert begun.wait(30)
    threads.start(lambda: made.append(2))
    threads.leave()
    go.set()
    call.answer()
    for thread in threading.enumerate():
        if thread.name.startswith("launcher_"):
            thread.join(30)
    assert made == [1]
