"""The training's end of the link to its worker: what stops it, what is played again, and in which order."""

from __future__ import annotations

import os
import random
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from eval.agents.base import Decision, History
from eval.desktop import InfraError, Observation, Task
from eval.rollout.loop import RolloutLimits
from tests.integration.rl.simulated import (
    Clicking,
    Endless,
    FaultyDesktop,
    Ledger,
    NoWeights,
    ThreadWorker,
    simulated_config,
)
from training.rl.asynchronous.rollouts import RolloutCollector
from training.rl.rollouts.play import PolicyFailed, RolloutsStopped
from training.rl.sections import AsyncConfig

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


def collector_of(
    policies: Callable[[], Clicking], faults: float = 0.0, **changes: Any
) -> tuple[RolloutCollector, Ledger]:
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

    return RolloutCollector(chosen, Endless(2), NoWeights(), start), ledger


def test_the_groups_of_an_update_are_of_its_weights_or_little_older() -> None:
    collector, ledger = collector_of(Clicking)
    for number in range(5):
        made = collector.collect(number)
        assert [len(group.rollouts) for group in made.groups] == [2, 2]
        assert 0 <= collector.figures["staleness_most"] <= 1
    collector.close()
    assert ledger.open == 0
    assert collector.queue is not None
    assert collector.queue.tally.used == 5 * 4


def test_what_a_dead_worker_had_not_given_back_is_played_again() -> None:
    policies = iter([Dying(3), Clicking()])
    collector, ledger = collector_of(lambda: next(policies))
    for number in range(3):
        assert collector.collect(number).tried == 4
    collector.close()
    assert collector.queue is not None
    assert collector.queue.tally.again > 0
    assert collector.deaths == 1
    assert len(ledger.began) > collector.queue.tally.used
    assert ledger.open == 0


def test_a_worker_that_always_dies_ends_the_training() -> None:
    collector, _ = collector_of(lambda: Dying(1))
    with pytest.raises(InfraError, match="the rollout worker ended by itself 2 times, the last time with"):
        collector.collect(0)
    collector.close()


def test_a_fault_of_the_policy_is_told_and_no_void_rollout() -> None:
    collector, _ = collector_of(Broken)
    with pytest.raises(PolicyFailed, match="RuntimeError: out of memory"):
        collector.collect(0)
    collector.close()


def test_too_many_void_rollouts_stop_the_training_with_the_reasons() -> None:
    collector, _ = collector_of(Clicking, faults=1.0)
    with pytest.raises(InfraError, match=r"of 4 rollouts are void, more than max_void 0\.4"):
        deque(map(collector.collect, range(9)), maxlen=0)
    collector.close()


def test_a_stop_is_heard_and_what_was_drawn_and_not_used_comes_first_afterwards() -> None:
    collector, _ = collector_of(Clicking)
    collector.collect(0)
    with pytest.raises(RolloutsStopped):  # a worker that is ahead may have made an update's groups before anybody asks
        deque((collector.collect(number, stop=lambda: True) for number in range(1, 500)), maxlen=0)
    unused = collector.unused
    collector.close()
    assert unused
    again, _ = collector_of(Clicking)
    again.before = (Task("kept-1", "click", 1, max_steps=3), Task("kept-2", "click", 2, max_steps=3))
    made = again.collect(0)
    again.close()
    assert {"kept-1", "kept-2"} & {task.task_id for task in (*made.tasks, *again.unused)} == {"kept-1", "kept-2"}


def test_nothing_is_ordered_that_no_update_would_use() -> None:
    collector, ledger = collector_of(Clicking)
    collector.config = msgspec.structs.replace(collector.config, steps=3)
    for number in range(3):
        collector.collect(number)
    assert collector.queue is not None
    assert collector.queue.there == 0
    assert collector.queue.tally.ordered == collector.queue.tally.used == 3 * 2 * 2
    collector.close()
    assert len(ledger.judged) == 3 * 2 * 2
