"""The rollouts of a generation: at once, each on its own desktop, and what fails is void, never a score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.agents.base import Decision, History
from eval.desktop import Desktop, InfraError, Observation, Task
from eval.environments.login import LoginOptions
from eval.environments.registry import TasksConfig
from eval.prompts import PastStep
from eval.rollout.loop import RolloutLimits
from tests.integration.rl.worlds import STEPS, Faulty, RightSide, Sides, Slow
from training.rl.config import RlConfig
from training.rl.rollouts import play
from training.rl.rollouts.curriculum import TaskEffort
from training.rl.rollouts.generation import RolloutGeneration
from training.rl.rollouts.play import PolicyFailed, RolloutsStopped, generate
from training.rl.rollouts.policy import PolicyQuestion, SampledTurn

pytestmark = pytest.mark.ml
OPTIONS = LoginOptions(split="train")


class Fixed:
    """Clicks on the right in the rollouts with an even seat, on the left in the others."""

    name = "fixed"
    parallel = 1

    def __init__(self) -> None:
        self.asked: list[list[tuple[int, str]]] = []

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        self.asked.append([(each.seat, each.seed) for each in histories if isinstance(each, PolicyQuestion)])
        out = []
        for history in histories:
            assert isinstance(history, PolicyQuestion)
            history.turns.append(SampledTurn((1,), (), (history.seat, 2), (-0.5, -0.5)))
            out.append(Decision("", Action(ActionType.CLICK, x=0.3 if history.seat % 2 else 0.9, y=0.99)))
        return out


def config(**changes: Any) -> RlConfig:
    values: dict[str, Any] = {
        "model": "none",
        "environment": "tests.integration.rl.worlds:Sides",
        "tasks": TasksConfig(count=4, seed=0),
        "limits": RolloutLimits(concurrency=16, attempts=2, backoff=0.0),
        "tasks_per_generation": 2,
        "group_size": 4,
        "batching": "together",
        "steps": 1,
    }
    return RlConfig(**{**values, **changes})


def tasks(count: int) -> list[Task]:
    return Sides().tasks(count, 0, {})


def planned(fails: Sequence[str]) -> Callable[[], Desktop]:
    """A desktop each for what fails in it, then desktops in which nothing does."""
    plan: Iterator[str] = iter(fails)
    return lambda: Faulty(OPTIONS, next(plan, ""))


def test_all_members_of_a_group_have_the_same_task_and_their_own_random_numbers() -> None:
    policy = Fixed()
    made = generate(policy, lambda: RightSide(OPTIONS), tasks(2), config(), 0)
    assert [group.task.task_id for group in made.groups] == ["login-0", "login-1"]
    assert [[played.reward for played in group.rollouts] for group in made.groups] == [[1.0, 0.0, 1.0, 0.0]] * 2
    assert all(len(played.turns) == len(played.episode.steps) == STEPS for g in made.groups for played in g.rollouts)
    assert [[seat for seat, _ in call] for call in policy.asked] == [list(range(8))] * STEPS
    assert len({seed for call in policy.asked for _, seed in call}) == 8 * STEPS
    own = [turn.ids[0] for group in made.groups for played in group.rollouts for turn in played.turns]
    assert own == [seat for seat in range(8) for _ in range(STEPS)]  # no rollout has the turns of another


def test_two_groups_of_one_task_have_different_random_numbers() -> None:
    """A task may come twice in a generation: last in one pass over all tasks, first in the next."""
    policy = Fixed()
    (task,) = tasks(1)
    generate(policy, lambda: RightSide(OPTIONS), [task, task], config(), 0)
    assert len({seed for call in policy.asked for _, seed in call}) == 8 * STEPS


@pytest.mark.parametrize("batching", ["together", "ready"])
def test_the_desktops_of_sixteen_rollouts_step_at_once(batching: str) -> None:
    """Every desktop has begun its step before the first one ends it."""
    log: list[str] = []
    chosen = config(group_size=8, batching=batching)
    generate(Fixed(), lambda: Slow(OPTIONS, 0.4, log), tasks(2), chosen, 0)
    assert len(log) == 2 * 16 * STEPS
    rounds = [log[at : at + 32] for at in range(0, len(log), 32)]
    assert rounds == [["begin"] * 16 + ["end"] * 16] * STEPS


@pytest.mark.parametrize("fails", ["desktop", "nan", "five", "minus"])
def test_what_fails_once_is_tried_again_and_counted(fails: str) -> None:
    made = generate(Fixed(), planned([fails]), tasks(2), config(), 0)
    assert (made.retried, made.void.total(), [len(group.rollouts) for group in made.groups]) == (1, 0, [4, 4])


def test_a_checker_that_fails_on_one_state_and_judges_the_untouched_one_is_a_return_of_0() -> None:
    made = generate(Fixed(), planned(["checker"]), tasks(2), config(), 0)
    assert (made.retried, made.void.total(), [len(group.rollouts) for group in made.groups]) == (0, 0, [4, 4])
    assert made.groups[0].rollouts[0].reward == 0.0


def test_a_score_that_is_none_is_void_and_said() -> None:
    log = iter(["five", "", "", "", "", "", "", "", "five"])  # the first rollout, and its second attempt
    made = generate(Fixed(), lambda: Faulty(OPTIONS, next(log, "")), tasks(2), config(), 0)
    assert dict(made.void) == {"InfraError: the checker gave the score 5.0; allowed: from 0 to 1": 1}


def test_what_fails_every_time_is_void_and_leaves_its_group() -> None:
    log = iter(["desktop", "", "", "", "", "", "", "", "desktop"])  # the first rollout, and its second attempt
    made = generate(Fixed(), lambda: Faulty(OPTIONS, next(log, "")), tasks(2), config(), 0)
    assert dict(made.void) == {"DesktopGone: the desktop is gone": 1}
    assert [[played.number for played in group.rollouts] for group in made.groups] == [[1, 2, 3], [0, 1, 2, 3]]


def test_a_group_with_one_rollout_left_is_dropped_and_counted() -> None:
    fails = ["checker"] * 3 + [""] * 5 + ["checker"] * 3  # the last three: the untouched states, which it fails on, too
    made = generate(Fixed(), planned(fails), tasks(2), config(limits=RolloutLimits(attempts=1), max_void=0.5), 0)
    assert made.dropped == ["login-0"]
    assert [group.task.task_id for group in made.groups] == ["login-1"]
    ((why, count),) = made.void.items()
    assert ("ValueError: the checker has a fault" in why, count) == (True, 3)


def test_too_many_void_rollouts_stop_the_training_with_the_reasons() -> None:
    fails = ["checker", "desktop", "desktop", *[""] * 5, "checker"]  # the last: on the untouched state, too
    with pytest.raises(
        InfraError, match=r"3 of 8 rollouts are void, more than max_void 0.25: 2 x DesktopGone.*; 1 x .*Value"
    ):
        generate(Fixed(), planned(fails), tasks(2), config(limits=RolloutLimits(attempts=1)), 0)


def test_a_fault_of_the_policy_is_no_void_rollout() -> None:
    class Broken(Fixed):
        async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
            raise RuntimeError("out of memory")

    with pytest.raises(PolicyFailed, match="RuntimeError: out of memory"):
        generate(Broken(), lambda: RightSide(OPTIONS), tasks(2), config(), 0)


def test_rollouts_stop_when_they_are_asked_to() -> None:
    log: list[str] = []
    with pytest.raises(RolloutsStopped):
        generate(Fixed(), lambda: Slow(OPTIONS, 3600.0, log), tasks(2), config(), 0, lambda: bool(log))
    assert "end" not in log


def test_each_turn_costs() -> None:
    """Of three turns at .02 each: .06 of every return, also where nothing was reached."""
    free = generate(Fixed(), planned([]), tasks(2), config(), 0)
    costly = generate(Fixed(), planned([]), tasks(2), config(turn_cost=0.02), 0)
    for before, after in zip(free.groups, costly.groups, strict=True):
        for one, other in zip(before.rollouts, after.rollouts, strict=True):
            assert len(other.turns) == STEPS == 3
            assert other.reward == pytest.approx(one.reward - 0.06)
            assert other.episode.score == one.episode.score


class Hopeless(Fixed):
    """Does as `Fixed`, but only on the left in some tasks."""

    def __init__(self, *tasks: str) -> None:
        super().__init__()
        self.tasks = tasks

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        found = await super().act(observations, histories)
        left = Decision("", Action(ActionType.CLICK, x=0.3, y=0.99))
        return [left if one.task.task_id in self.tasks else each for one, each in zip(histories, found, strict=True)]


def drawn(asked: list[int], start: int = 2) -> Callable[[int], Sequence[Task]]:
    """The tasks after the first ones, and how many were wanted each time."""
    there = iter(tasks(12)[start:])

    def further(count: int) -> list[Task]:
        asked.append(count)
        return [next(there) for _ in range(count)]

    return further


def test_dynamic_sampling_tries_further_tasks_until_enough_groups_teach_something() -> None:
    policy, asked = Hopeless("login-0", "login-1", "login-3"), list[int]()
    made = generate(policy, planned([]), tasks(2), config(most_groups=8), 0, further=drawn(asked))
    assert asked == [2, 1]  # login-2 and login-3, of which one teaches; then login-4
    assert [group.task.task_id for group in made.groups] == ["login-2", "login-4"]
    assert [group.task.task_id for group in made.unused] == ["login-0", "login-1", "login-3"]
    assert [(group.number, group.task.task_id) for group in made.judged] == [(n, f"login-{n}") for n in range(5)]
    assert [task.task_id for task in made.tasks] == [f"login-{n}" for n in range(5)]
    seeds = [seed for call in policy.asked for _, seed in call]
    assert len(seeds) == len(set(seeds)) == 5 * 4 * STEPS


def test_dynamic_sampling_ends_at_its_bound_with_what_there_is() -> None:
    asked = list[int]()
    few = Hopeless("login-0", "login-1", "login-3")
    made = generate(few, planned([]), tasks(2), config(most_groups=4), 0, further=drawn(asked))
    assert (asked, [group.task.task_id for group in made.groups]) == ([2], ["login-2"])
    asked.clear()
    none = Hopeless(*(f"login-{n}" for n in range(9)))
    made = generate(none, planned([]), tasks(2), config(most_groups=3), 0, further=drawn(asked))
    assert (asked, len(made.groups), made.unused) == ([1], 3, [])
    asked.clear()
    made = generate(none, planned([]), tasks(2), config(), 0, further=drawn(asked))
    assert (asked, len(made.groups)) == ([], 2)  # without dynamic sampling


def test_a_group_without_rollouts_counts_as_tried_and_too_many_void_ones_stop_at_once() -> None:
    asked = list[int]()
    once = RolloutLimits(attempts=1, concurrency=16)
    half = config(limits=once, most_groups=3, max_void=0.5)
    made = generate(Fixed(), planned(["start"] * 3), tasks(2), half, 0, further=drawn(asked))
    assert (asked, made.dropped, [group.task.task_id for group in made.groups]) == (
        [1],
        ["login-0"],
        ["login-1", "login-2"],
    )
    asked.clear()
    with pytest.raises(InfraError, match="3 of 8 rollouts are void"):
        generate(Fixed(), planned(["start"] * 3), tasks(2), config(limits=once, most_groups=3), 0, further=drawn(asked))
    assert asked == []


def test_long_answers_cost() -> None:
    """Two tokens each: with a limit of 4 and a buffer of 4 they cost 2/4, with a buffer of 2 nothing yet."""
    free = generate(Fixed(), planned([]), tasks(2), config(max_completion=4), 0)
    costly = generate(Fixed(), planned([]), tasks(2), config(max_completion=4, length_buffer=4), 0)
    begun = generate(Fixed(), planned([]), tasks(2), config(max_completion=4, length_buffer=2), 0)

    def rewards(made: RolloutGeneration) -> list[float]:
        return [each.reward for group in made.groups for each in group.rollouts]

    assert rewards(costly) == [each - 0.5 for each in rewards(free)]
    assert rewards(begun) == rewards(free)


def test_a_judge_of_whole_episodes_gives_the_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees the goal, all three steps with their screens, and the screen after the last one; who succeeded is still
    the environment's word."""
    seen: list[tuple[str, int, tuple[int, int]]] = []

    class Judge:
        def probability(self, asked: tuple[str, Sequence[PastStep], Any]) -> float:
            goal, past, last = asked
            assert all(step.image is not None for step in past)
            seen.append((goal, len(past), last.size))
            return 0.25 if past[0].action is not None and past[0].action.x == 0.9 else 0.75

    monkeypatch.setattr(play, "load_judge", lambda _: Judge())
    made = generate(Fixed(), planned([]), tasks(2), config(reward="model", reward_model="judge"), 0)
    assert [[each.reward for each in group.rollouts] for group in made.groups] == [[0.25, 0.75, 0.25, 0.75]] * 2
    first = made.groups[0].rollouts[0]
    assert (first.parts, first.episode.success) == ({"model": 0.25}, True)
    assert {each[1:] for each in seen} == {(STEPS, first.episode.screen)}
    assert {each[0] for each in seen} == {group.task.instruction for group in made.groups}
    monkeypatch.setattr(play, "load_judge", lambda _: None)
    with pytest.raises(PolicyFailed, match="reward_model: AttributeError"):
        generate(Fixed(), planned([]), tasks(2), config(reward="model", reward_model="judge"), 0)


def test_a_group_has_the_rollouts_and_turns_that_its_task_gets() -> None:
    """And what each return is the sum of is kept: 1 for all three turns on the right, .5 off for the length of 2."""
    given = {"login-0": TaskEffort(2), "login-1": TaskEffort(5, turns=1)}
    chosen = config(turn_cost=0.02, max_completion=4, length_buffer=4)
    made = generate(Fixed(), planned([]), tasks(2), chosen, 0, effort=lambda task: given[task.task_id])
    assert [[len(each.turns) for each in group.rollouts] for group in made.groups] == [[3, 3], [1] * 5]
    assert [[each.number for each in group.rollouts] for group in made.groups] == [[0, 1], [0, 1, 2, 3, 4]]
    assert made.tried == 7
    first = made.groups[0].rollouts[0]
    assert first.parts == {"score": 1.0, "turn_cost": -0.06, "length_cost": -0.5}
    assert first.reward == pytest.approx(0.44)
