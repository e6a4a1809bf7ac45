"""Idle shares by hand."""

from __future__ import annotations

import pytest

from training.rl.rollouts.waiting_times import WaitingClock, WaitingTimes


def test_idle_shares_by_hand() -> None:
    """Two rollouts run from 0 and from 2 on, to 10; the first asks from 1 to 4, the second from 3 to 6.

    The model is asked from 1 to 6, so it idles 5 of 10 seconds. The rollouts take 10 + 8 = 18 seconds, and wait
    3 + 3 = 6 of them.
    """
    now = 0.0
    clock = WaitingClock(lambda: now)
    first, second, one, other = clock.rollout(), clock.rollout(), clock.ask(), clock.ask()
    for at, enters, context in (
        (0, True, first),
        (1, True, one),
        (2, True, second),
        (3, True, other),
        (4, False, one),
        (6, False, other),
        (10, False, first),
        (10, False, second),
    ):
        now = at
        context.__enter__() if enters else context.__exit__(None, None, None)
    assert clock.read() == WaitingTimes(10, 5, 18, 6)
    assert clock.read().since(WaitingTimes()) == {"model_idle": 0.5, "desktop_idle": pytest.approx(1 / 3)}
    assert clock.read().since(WaitingTimes(6, 5, 10, 6)) == {"model_idle": 1.0, "desktop_idle": 0.0}
    assert WaitingTimes().since(WaitingTimes()) == {}
