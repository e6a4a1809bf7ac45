"""A thousand simulated desktops at once, with faults of every kind: no rollout is lost, and none counts twice."""

from __future__ import annotations

import random

import pytest

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
from training.rl.rollouts.generation import RolloutGeneration
from training.rl.rollouts.play import generate
from training.rl.sections import AsyncConfig

pytestmark = pytest.mark.ml


def attempts(made: RolloutGeneration) -> list[int]:
    """The attempt that each rollout of a generation that counts was judged in."""
    return [each.episode.metadata["score"]["attempt"] for group in made.groups for each in group.rollouts]


def every_rollout_ended_once(made: RolloutGeneration, size: int) -> None:
    dropped = set(range(len(made.tasks))) - {group.number for group in made.groups}
    places = [(group.number, each.number) for group in made.groups for each in group.rollouts]
    places += [(group, member) for group, member, _ in made.lost if group not in dropped]
    assert sorted(places) == [(n, k) for n in range(len(made.tasks)) if n not in dropped for k in range(size)]
    assert made.tried == len(made.tasks) * size
    assert all(sum(group == number for group, _, _ in made.lost) >= size - 1 for number in dropped)


def trial(seed: int, count: int) -> None:
    """`count` groups of eight at once."""
    draw, ledger = random.Random(seed), Ledger()
    policy, chosen = Clicking(), simulated_config(tasks_per_generation=count)
    policy.follow(0, "")
    made = generate(policy, lambda: FaultyDesktop(ledger, draw, 0.3), Endless(8).further(count), chosen, 0)
    every_rollout_ended_once(made, 8)
    counted = attempts(made)
    assert len(counted) == len(set(counted))
    assert set(counted) <= set(ledger.judged)
    alone = len(ledger.judged) - len(counted)  # the only valid ones of groups that were dropped
    assert 0 <= alone <= len(made.dropped)
    assert len(ledger.raised) > 0
    assert len(ledger.began) == made.tried + made.retried + len(ledger.raised)
    assert (ledger.open, ledger.closed, ledger.most) == (0, len(ledger.began), count * 8)
    assert made.void.total() > 0 < made.retried


def test_a_thousand_desktops_of_one_generation() -> None:
    trial(0, 125)


@pytest.mark.nightly
def test_a_thousand_desktops_ten_times() -> None:
    for seed in range(1, 11):
        trial(seed, 125)


def beside(seed: int, desktops: int, updates: int) -> None:
    draw, ledger = random.Random(seed), Ledger()
    groups = desktops // 8 // 3  # three times as many are ordered ahead
    chosen = simulated_config(
        tasks_per_generation=groups,
        asynchronous=AsyncConfig(staleness=2),
        limits=RolloutLimits(concurrency=desktops, attempts=2, backoff=0.0),
    )
    worker = lambda: ThreadWorker(Clicking(), lambda: FaultyDesktop(ledger, draw, 0.3), chosen)  # noqa: E731
    collector = RolloutCollector(chosen, Endless(8), NoWeights(), worker)
    counted: list[int] = []
    try:
        for number in range(updates):
            made = collector.collect(number)
            every_rollout_ended_once(made, 8)
            counted += attempts(made)
            versions = [turn.version for group in made.groups for each in group.rollouts for turn in each.turns]
            assert all(version is not None and 0 <= number - version <= 2 for version in versions)
    finally:
        collector.close()
    assert collector.queue is not None
    tally = collector.queue.tally
    assert tally.used == updates * groups * 8
    assert tally.ordered == tally.used + tally.aged + tally.left
    assert tally.strange <= tally.aged
    assert len(counted) == len(set(counted))
    assert set(counted) <= set(ledger.judged)
    assert (ledger.open, ledger.closed) == (0, len(ledger.began))
    assert ledger.most <= desktops


def test_desktops_beside_a_training() -> None:
    beside(0, 240, 4)


@pytest.mark.nightly
def test_a_thousand_desktops_beside_a_training() -> None:
    for seed in range(1, 4):
        beside(seed, 1008, 6)
