"""Which tasks a generation gets, also after an interruption and from a checkpoint."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from eval.config import ConfigError
from eval.desktop import Task
from eval.environments.registry import TasksConfig
from eval.episodes import Episode
from eval.rollout.loop import RolloutLimits
from training.rl.config import RlConfig
from training.rl.rollouts.curriculum import TaskEffort
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import SampledTurn
from training.rl.rollouts.task_sampler import TaskSampler

pytestmark = pytest.mark.ml
TASKS = [Task(f"t{number}", "do", number) for number in range(6)]


def config(order: Any, most: int | None = None) -> RlConfig:
    tasks = TasksConfig(count=6, seed=0)
    return RlConfig(
        model="m", environment="login", tasks=tasks, task_order=order, tasks_per_generation=2, most_groups=most
    )


def played(success: bool, turns: int = 0) -> PlayedRollout:
    episode = Episode(
        episode_id="e", task_id="t", instruction="i", screen=(1, 1), success=success, score=float(success)
    )
    return PlayedRollout(0, episode, (SampledTurn((), (), (), ()),) * turns, float(success))


def made(number: int, tasks: list[Task], mixed: set[str]) -> RolloutGeneration:
    groups = [RolloutGroup(task, (played(True), played(task.task_id not in mixed))) for task in tasks]
    return RolloutGeneration(number, groups=groups)


def test_evenly_every_task_comes_once_in_each_pass() -> None:
    sampler = TaskSampler(config("even"), TASKS)
    drawn = [task.task_id for number in range(9) for task in sampler.draw(number)]
    for start in (0, 6, 12):
        assert sorted(drawn[start : start + 6]) == [task.task_id for task in TASKS]
    assert drawn[:6] != drawn[6:12]


def test_the_curriculum_draws_more_of_what_has_a_signal() -> None:
    sampler = TaskSampler(config("curriculum"), TASKS)
    seen: Counter[str] = Counter()
    for number in range(200):
        drawn = sampler.draw(number)
        seen.update(task.task_id for task in drawn)
        sampler.note(made(number, drawn, {"t0", "t1"}))
    for other in ("t2", "t3", "t4", "t5"):
        assert 0 < seen[other] < seen["t0"] / 3


def test_a_generation_that_is_tried_again_gets_the_same_tasks() -> None:
    """SIGTERM breaks rollouts off, and a checkpoint may be written then."""
    sampler = TaskSampler(config("curriculum"), TASKS)
    for number in range(3):
        broken, held = sampler.draw(number), json.dumps(sampler.state())
        assert json.dumps(sampler.state()) == held
        assert sampler.draw(number) == broken
        sampler.note(made(number, broken, set()))
        assert json.dumps(sampler.state()) != held


@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_resumed_training_draws_what_it_would_have_drawn(stop: int) -> None:
    whole, again = TaskSampler(config("curriculum"), TASKS), TaskSampler(config("curriculum"), TASKS)
    after, resumed = [], []
    for number in range(10):
        drawn = whole.draw(number)
        whole.note(made(number, drawn, {"t0"}))
        if number == stop:
            held = {"TaskSampler": json.loads(json.dumps(whole.state()))}
            again.on_train_begin(None, SimpleNamespace(stateful_callbacks=held, global_step=stop + 1), None)  # type: ignore[arg-type]
        elif number > stop:
            after.append(drawn)
            resumed.append(again.draw(number))
            again.note(made(number, resumed[-1], {"t0"}))
    assert resumed == after


def sampled(sampler: TaskSampler, number: int) -> list[Task]:
    """The tasks of a generation of dynamic sampling: in every second one, three more."""
    drawn = sampler.draw(number)
    drawn += sampler.further(2) + sampler.further(1) if number % 2 else []
    return drawn


@pytest.mark.parametrize("stop", [0, 1, 4])
@pytest.mark.parametrize("order", ["even", "curriculum"])
def test_further_tasks_are_the_next_ones_also_after_an_interruption(order: str, stop: int) -> None:
    whole, again = TaskSampler(config(order, 5), TASKS), TaskSampler(config(order, 5), TASKS)
    everything: list[str] = []
    for number in range(8):
        drawn = sampled(whole, number)
        assert sampled(whole, number) == drawn  # broken off and tried again
        everything += [task.task_id for task in drawn]
        whole.note(made(number, drawn, {"t0"}))
        if number == stop:
            held = {"TaskSampler": json.loads(json.dumps(whole.state()))}
            again.on_train_begin(None, SimpleNamespace(stateful_callbacks=held, global_step=stop + 1), None)  # type: ignore[arg-type]
        elif number > stop:
            assert sampled(again, number) == drawn
            again.note(made(number, drawn, {"t0"}))
    if order == "even":
        assert len(everything) == 4 * 2 + 4 * 5
        for start in (0, 6, 12, 18):
            assert sorted(everything[start : start + 6]) == [task.task_id for task in TASKS]


def test_a_hard_or_easy_task_gets_more_rollouts_and_a_short_one_fewer_turns() -> None:
    """Of 16 rollouts of t0 none and of t1 eight succeeded: (0 + 1) / 18, where 1 - p^n - (1-p)^n stays below .9 up to
    40 rollouts, and 9 / 18, where 1 - 2/2^n is .9375 at 5. Its longest success had 2 turns: 1.5 * 2 = 3."""
    chosen = structs.replace(
        config("curriculum"), group_size=2, most_rollouts=12, turn_slack=1.5, limits=RolloutLimits(max_steps=9)
    )
    sampler = TaskSampler(chosen, TASKS)
    assert sampler.effort(TASKS[0]) == TaskEffort(5, 9)
    for number in range(8):
        group = RolloutGroup(TASKS[1], (played(True, turns=2), played(False, turns=4)))
        failed = RolloutGroup(TASKS[0], (played(False), played(False)))
        sampler.note(RolloutGeneration(number, groups=[group, failed]))
    assert sampler.effort(TASKS[0]) == TaskEffort(12, 9)
    assert sampler.effort(TASKS[1]) == TaskEffort(5, 3)
    assert TaskSampler(config("even"), TASKS).effort(TASKS[0]) == TaskEffort(8, None)


@pytest.mark.parametrize("name", ["TaskSampler", "TaskDrawer"], ids=["now", "older"])  # of the class
@pytest.mark.parametrize("order", ["even", "curriculum"])
def test_what_was_ordered_ahead_and_not_used_is_in_a_checkpoint_and_not_drawn_again(order: str, name: str) -> None:
    whole, again = TaskSampler(config(order), TASKS), TaskSampler(config(order), TASKS)
    whole.on_train_begin(None, SimpleNamespace(stateful_callbacks={}, global_step=0), None)  # type: ignore[arg-type]
    drawn = whole.further(4)
    whole.note(made(0, drawn[:2], set()))
    drawn += whole.further(1)
    whole.unused = lambda: drawn[2:]
    held = {name: json.loads(json.dumps(whole.state()))}
    again.on_train_begin(None, SimpleNamespace(stateful_callbacks=held, global_step=1), None)  # type: ignore[arg-type]
    assert list(again.before) == drawn[2:]
    assert again.further(3) == whole.further(3)


def test_a_checkpoint_of_other_tasks_is_refused() -> None:
    held = {"TaskSampler": TaskSampler(config("curriculum"), TASKS[:5]).state()}
    sampler = TaskSampler(config("curriculum"), TASKS)
    with pytest.raises(ConfigError, match="of other tasks: t5 5"):
        sampler.on_train_begin(None, SimpleNamespace(stateful_callbacks=held, global_step=3), None)  # type: ignore[arg-type]
