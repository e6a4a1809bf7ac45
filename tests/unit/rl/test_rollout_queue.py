"""The queue of rollouts that run beside a training: each order ends once, and groups age as a whole."""

from __future__ import annotations

import random

import pytest

from eval.desktop import Task
from eval.episodes import Episode
from training.rl.asynchronous.messages import RolloutBegan, RolloutEnded, RolloutOrder
from training.rl.asynchronous.rollout_queue import RolloutQueue, ages
from training.rl.rollouts.curriculum import TaskEffort
from training.rl.rollouts.generation import PlayedRollout
from training.rl.rollouts.policy import SampledTurn

pytestmark = pytest.mark.ml
TASK = Task("t", "do")


def played(member: int, version: int = 0, reward: float = 0.0) -> PlayedRollout:
    episode = Episode(episode_id="e", task_id="t", instruction="i", screen=(1, 1), success=False, score=0.0)
    return PlayedRollout(member, episode, (SampledTurn((), (), (), (), version=version),), reward, version=version)


def test_a_group_is_there_when_all_its_rollouts_are_and_the_void_ones_are_left_out() -> None:
    queue = RolloutQueue(1, "s")
    first, second = queue.order(TASK, TaskEffort(3)), queue.order(TASK, TaskEffort(2, turns=4))
    assert [order.seed for order in first] == ["s 0 0", "s 0 1", "s 0 2"]
    assert [order.turns for order in second] == [4, 4]
    for member, result in ((2, played(2)), (0, "DesktopGone: x"), (1, played(1))):
        assert not queue.done
        assert queue.ended(RolloutEnded(0, member, result, retried=1))
    made = queue.take(1, 5)
    assert (made.number, made.tried, made.retried, dict(made.void)) == (5, 3, 3, {"DesktopGone: x": 1})
    assert [[each.number for each in group.rollouts] for group in made.groups] == [[1, 2]]
    assert made.lost == [(0, 0, "DesktopGone: x")]
    assert queue.there == 1


def test_what_comes_twice_or_late_counts_once() -> None:
    queue = RolloutQueue(1, "s")
    queue.order(TASK, TaskEffort(2))
    assert queue.ended(RolloutEnded(0, 0, played(0)))
    assert not queue.ended(RolloutEnded(0, 0, played(0)))
    assert queue.ended(RolloutEnded(0, 1, played(1)))
    assert not queue.ended(RolloutEnded(0, 1, played(1)))  # complete
    assert not queue.ended(RolloutEnded(7, 0, played(0)))  # never ordered
    assert (queue.tally.strange, len(queue.take(1, 0).groups[0].rollouts)) == (3, 2)


def test_a_group_ages_by_its_first_rollout_and_as_a_whole() -> None:
    """Begun with version 2, it may be in the updates 2 and 3 with a staleness of 1, and in none after."""
    queue = RolloutQueue(1, "s")
    queue.order(TASK, TaskEffort(2))
    queue.order(TASK, TaskEffort(2))
    queue.began(RolloutBegan(0, 1, 2))
    queue.began(RolloutBegan(0, 0, 4))
    queue.ended(RolloutEnded(0, 0, played(0, 4)))
    assert queue.age(3) == ()
    assert queue.age(4) == (0,)
    assert not queue.ended(RolloutEnded(0, 1, played(1, 2)))
    assert (queue.tally.aged, queue.there) == (2, 1)  # the other one has not begun: it has no age


def test_another_worker_gets_what_is_not_back() -> None:
    queue = RolloutQueue(1, "s")
    orders = [*queue.order(TASK, TaskEffort(2)), *queue.order(TASK, TaskEffort(2))]
    for member in (0, 1):
        queue.ended(RolloutEnded(0, member, played(member)))
    queue.ended(RolloutEnded(1, 1, played(1)))
    assert queue.unfinished() == [orders[2]]
    assert queue.tally.again == 1


def test_how_old_turns_are() -> None:
    queue = RolloutQueue(3, "s")
    queue.order(TASK, TaskEffort(2))
    queue.ended(RolloutEnded(0, 0, played(0, version=4)))
    queue.ended(RolloutEnded(0, 1, played(1, version=5)))
    assert list(ages(queue.take(1, 5), 5)) == [1, 0]


def test_no_order_is_lost_or_counted_twice_whatever_happens() -> None:
    """Workers die, answers come twice, late and in any order, versions go on: 1,000 trials."""
    for trial in range(1000):
        draw = random.Random(trial)
        queue, staleness = RolloutQueue(draw.randint(1, 3), "s"), 0
        at_worker: list[RolloutOrder] = []
        sent: list[RolloutEnded] = []
        counted: list[float] = []
        serial = 0.0
        version = 0
        for _ in range(draw.randint(1, 120)):
            what = draw.random()
            if what < 0.2:
                at_worker += queue.order(TASK, TaskEffort(draw.randint(2, 4)))
            elif what < 0.5 and at_worker:
                order = at_worker.pop(draw.randrange(len(at_worker)))
                queue.began(RolloutBegan(order.group, order.member, max(0, version - draw.randint(0, 1))))
                serial += 1
                valid = draw.random() < 0.8
                result: PlayedRollout | str = played(order.member, version, serial) if valid else "void"
                sent.append(RolloutEnded(order.group, order.member, result))
            elif what < 0.8 and sent:
                news = draw.choice(sent)  # also for the second time
                queue.ended(news)
            elif what < 0.85:
                sent = []  # the worker died: what it had not told is lost
                at_worker = queue.unfinished()
            else:
                version += 1
                gone = set(queue.age(version))
                assert all(group.oldest is None or version - group.oldest <= queue.staleness for group in queue.done)
                at_worker = [order for order in at_worker if order.group not in gone]
                made = queue.take(draw.randint(1, 2), version)
                counted += [each.reward for group in made.groups for each in group.rollouts]
                staleness = max([staleness, *ages(made, version)])
        assert len(counted) == len(set(counted)), trial
        queue.leave()
        tally = queue.tally
        assert tally.ordered == tally.used + tally.aged + tally.left, trial
        assert staleness <= queue.staleness, trial
