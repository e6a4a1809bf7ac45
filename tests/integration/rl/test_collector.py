"""The training's end of the link to its worker: what stops it, what is played again, and in which order."""

from __future__ import annotations

import os
import random
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from eval.agents.base import Decision, History
from eval.desktop import InfraError, Observation, Task
from eval.rollout import RolloutLimits
from tests.integration.rl.simulated import (
    Clicking,
    Endless,
    FaultyDesktop,
    Ledger,
    NoWeights,
    ThreadWorker,
    simulated_config,
)
from training.rl.asynchronous.collector import RolloutFeed
from training.rl.config import AsyncConfig
from training.rl.rollouts.play import PolicyFailed, RolloutsStopped

pytestmark = pytest.mark.ml


class Dying(Clicking):
    """Its worker's link breaks at the call number `last`."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.left = last
        self.link: Any = None

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        self.left -= 1
        if not self.left:
            with socket.socket(fileno=os.dup(self.link.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
        return await super().act(observations, histories)


class Broken(Clicking):
    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        raise RuntimeError("out of memory")


def feed_of(policies: Callable[[], Clicking], faults: float = 0.0, **changes: Any) -> tuple[RolloutFeed, Ledger]:
    chosen = simulated_config(
        tasks_per_generation=2,
        group_size=2,
        limits=RolloutLimits(concurrency=4, attempts=1, backoff=0.0),
        asynchronous=AsyncConfig(**{"staleness": 1, "restarts": 1, **changes}),
        max_void=0.4,
    )
    ledger, draw = Ledger(), random.Random(0)

    def start() -> ThreadWorker:
        policy = policies()
        worker = ThreadWorker(policy, lambda: FaultyDesktop(ledger, draw, faults), chosen)
        if isinstance(policy, Dying):
            policy.link = worker.theirs
        return worker

    return RolloutFeed(chosen, Endless(2), NoWeights(), start), ledger


def test_the_groups_of_an_update_are_of_its_weights_or_little_older() -> None:
    feed, ledger = feed_of(Clicking)
    for number in range(5):
        made = feed.collect(number)
        assert [len(group.rollouts) for group in made.groups] == [2, 2]
        assert 0 <= feed.figures["staleness_most"] <= 1
    feed.close()
    assert ledger.open == 0
    assert feed.book is not None
    assert feed.book.tally.used == 5 * 4


def test_what_a_dead_worker_had_not_given_back_is_played_again() -> None:
    policies = iter([Dying(3), Clicking()])
    feed, ledger = feed_of(lambda: next(policies))
    for number in range(3):
        assert feed.collect(number).tried == 4
    feed.close()
    assert feed.book is not None
    assert feed.book.tally.again > 0
    assert feed.deaths == 1
    assert len(ledger.began) > feed.book.tally.used
    assert ledger.open == 0


def test_a_worker_that_always_dies_ends_the_training() -> None:
    feed, _ = feed_of(lambda: Dying(1))
    with pytest.raises(InfraError, match="the rollout worker ended by itself 2 times, the last time with"):
        feed.collect(0)
    feed.close()


def test_a_fault_of_the_policy_is_told_and_no_void_rollout() -> None:
    feed, _ = feed_of(Broken)
    with pytest.raises(PolicyFailed, match="RuntimeError: out of memory"):
        feed.collect(0)
    feed.close()


def test_too_many_void_rollouts_stop_the_training_with_the_reasons() -> None:
    feed, _ = feed_of(Clicking, faults=1.0)
    with pytest.raises(InfraError, match=r"of 4 rollouts are void, more than max_void 0\.4"):
        deque(map(feed.collect, range(9)), maxlen=0)
    feed.close()


def test_a_stop_is_heard_and_what_was_drawn_and_not_used_comes_first_afterwards() -> None:
    feed, _ = feed_of(Clicking)
    feed.collect(0)
    with pytest.raises(RolloutsStopped):  # a worker that is ahead may have made an update's groups before anybody asks
        deque((feed.collect(number, stop=lambda: True) for number in range(1, 500)), maxlen=0)
    unused = feed.unused
    feed.close()
    assert unused
    again, _ = feed_of(Clicking)
    again.before = (Task("kept-1", "click", 1, max_steps=3), Task("kept-2", "click", 2, max_steps=3))
    made = again.collect(0)
    again.close()
    assert {"kept-1", "kept-2"} & {task.task_id for task in (*made.tasks, *again.unused)} == {"kept-1", "kept-2"}
