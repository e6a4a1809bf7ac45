"""What is said of a command's end, word for word."""

from __future__ import annotations

import signal

import pytest

from launcher.reasons import Reason
from launcher.runtime.process.verdict import Ended, verdict


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Ended(0), ""),
        (Ended(0, stop=Reason.DEADLINE, done=True, why="late"), ""),
        (Ended(0, done=True, stop=Reason.LOST, why="the next attempt has begun"), "the next attempt has begun"),
        (Ended(0, terminated=True), "the command exited with 0, without .done, after SIGTERM"),
        (Ended(3, terminated=True), "the command exited with 3 after SIGTERM"),
        (Ended(-signal.SIGTERM, terminated=True), "the command was ended by SIGTERM after SIGTERM"),
        (Ended(-9, oom_kills=2), "the kernel killed 2 of its processes because memory ran out"),
        (Ended(1), "the command exited with 1"),
        (Ended(1, last_line="boom"), "the command exited with 1: boom"),
        (Ended(1, disk_full=True), "the command exited with 1; the disk of its outputs is full"),
        (Ended(-9), "the command was ended by SIGKILL from outside; the kernel counted no kill because memory ran out"),
        (Ended(137), "the command exited with 137 from outside; the kernel counted no kill because memory ran out"),
        (Ended(-77), "the command was ended by signal 77"),
    ],
)
def test_words(ended: Ended, words: str) -> None:
    assert verdict(ended)[1] == words


def test_a_kill_that_may_be_anothers_is_told_by_our_own_sigkill_only() -> None:
    assert verdict(Ended(1, oom_kills=1, oom_shared=True))[0] is Reason.USER_ERROR
    assert verdict(Ended(-9, oom_kills=1, oom_shared=True))[0] is Reason.OUT_OF_MEMORY
    assert verdict(Ended(-15, oom_kills=1, oom_shared=True))[0] is Reason.USER_ERROR
