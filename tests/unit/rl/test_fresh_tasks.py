"""Tasks that a training makes for itself, also after an interruption."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from eval.config import ConfigError
from eval.desktop import Task
from eval.environments.registry import TasksConfig, redrawing, tasks_of
from tests.unit.rl.test_task_sampler import played
from training.rl.config import RlConfig
from training.rl.rollouts.generation import RolloutGeneration, RolloutGroup
from training.rl.rollouts.task_sampler import TaskSampler, task_key
from training.rl.sections import FreshConfig

pytestmark = pytest.mark.ml


class Forms:
    """Tasks of two templates, `a` and `b` in turn; a seed of 50 or more is of another split."""

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        return [Task("ab"[number % 2], "do", number) for number in range(seed, seed + count)]

    def redraw(self, task: Task, seed: int, options: Mapping[str, Any]) -> Task:
        if seed >= 50:
            raise ConfigError("tasks.seed: no more")
        return Task(task.task_id, f"do {seed}", seed)

    def desktop(self, options: Mapping[str, Any]) -> Any:
        raise AssertionError("nothing is played here")


class Fixed(Forms):
    """It cannot draw a task anew."""

    redraw = None  # type: ignore[assignment]


class Odd(Forms):
    """It gives the task of another seed."""

    def redraw(self, task: Task, seed: int, options: Mapping[str, Any]) -> Task:
        return Task(task.task_id, "do", seed + 1)


def drawn_from(each: int = 1, most: int = 500, kind: str = "Forms") -> RlConfig:
    return RlConfig(
        model="m",
        environment=f"{__name__}:{kind}",
        tasks=TasksConfig(count=4, seed=10),
        task_order="curriculum",
        tasks_per_generation=2,
        steps=1,
        fresh=FreshConfig(each=each, most=most),
    )


def sampler(chosen: RlConfig) -> TaskSampler:
    return TaskSampler(chosen, Forms().tasks(chosen.tasks.count, chosen.tasks.seed, {}))


def told(number: int, tasks: list[Task], mixed: str) -> RolloutGeneration:
    """A generation in which tasks of the template `mixed` are solved once and failed once, and others fail."""
    groups = [RolloutGroup(task, (played(task.task_id == mixed), played(False))) for task in tasks]
    return RolloutGeneration(number, groups=groups)


def test_a_task_that_is_solved_sometimes_makes_another_of_its_template() -> None:
    made = sampler(drawn_from(each=2))
    first, other = made.tasks["a 10"], made.tasks["b 11"]
    made.note(told(0, [first, other], mixed="a"))
    assert list(made.tasks) == ["a 10", "b 11", "a 12", "b 13", "a 14", "a 15"]
    assert made.tasks["a 14"].instruction == "do 14"
    made.note(told(1, [made.tasks["a 15"]], mixed="a"))  # one that was made makes others
    assert list(made.tasks)[6:] == ["a 16", "a 17"]
    made.note(RolloutGeneration(2, groups=[RolloutGroup(other, (played(True), played(True)))]))
    assert len(made.tasks) == 8


def test_a_new_task_begins_with_the_record_of_its_template_and_full_weight() -> None:
    made = sampler(drawn_from())
    assert made.curriculum is not None
    task = made.tasks["a 10"]
    for number in range(3):
        made.note(RolloutGeneration(number, groups=[RolloutGroup(task, (played(False), played(False)))]))
    made.note(told(3, [task], mixed="a"))
    assert made.curriculum.success_rate("a 14") == (1 + 1) / (8 + 2)
    assert made.curriculum.weight("a 14") == 1
    made.note(RolloutGeneration(4, groups=[RolloutGroup(made.tasks["a 14"], (played(True), played(True)))]))
    assert made.curriculum.success_rate("a 10") == (1 + 1) / (8 + 2)  # its record is its own


def test_those_that_are_drawn_least_go_and_none_that_was_ordered() -> None:
    made = sampler(drawn_from(each=1, most=2))
    task = made.tasks["a 10"]
    for number in range(2):
        made.note(told(number, [task], mixed="a"))
    solved = RolloutGroup(made.tasks["a 15"], (played(True), played(True)))
    made.note(RolloutGeneration(2, groups=[solved]))
    made.note(told(3, [task], mixed="a"))
    assert list(made.tasks)[4:] == ["a 14", "a 16"]  # 15 was always solved
    ordered = [made.tasks["a 14"], made.tasks["a 16"]]
    made.unused = lambda: ordered
    made.note(told(4, [task], mixed="a"))
    assert list(made.tasks)[4:] == ["a 14", "a 16"]
    made.unused = tuple
    made.note(told(5, [task], mixed="a"))
    assert list(made.tasks)[4:] == ["a 16", "a 18"]
    for number in range(20):
        drawn = made.draw(number)
        made.note(told(number, drawn, mixed="a"))


def test_the_share_of_what_can_be_learned_grows() -> None:
    made, seen = sampler(drawn_from()), Counter[str]()
    for number in range(60):
        drawn = made.draw(number)
        seen.update(task.task_id for task in drawn)
        made.note(told(number, drawn, mixed="a"))
    assert seen["a"] > 4 * seen["b"] > 0
    assert max(task.seed for task in made.tasks.values()) == 49  # the split's last: the training goes on without more


@pytest.mark.parametrize("stop", [0, 3, 6])
def test_a_resumed_training_has_the_same_tasks(stop: int) -> None:
    chosen = drawn_from(each=2, most=5)
    whole, again = sampler(chosen), sampler(chosen)
    for number in range(10):
        drawn = whole.draw(number)
        if number > stop:
            assert again.draw(number) == drawn
            again.note(told(number, drawn, mixed="b"))
        whole.note(told(number, drawn, mixed="b"))
        if number == stop:
            ordered = whole.further(2)
            whole.unused = lambda ordered=ordered: ordered  # type: ignore[misc]
            state = json.loads(json.dumps(whole.state()))
            whole.unused = tuple
            held = SimpleNamespace(stateful_callbacks={"TaskSampler": state}, global_step=stop + 1)
            again.on_train_begin(None, held, None)
            assert list(again.before) == ordered
            whole.curriculum.draws = whole.after  # type: ignore[union-attr]
    assert again.tasks == whole.tasks
    assert again.state() == whole.state()


def test_a_checkpoint_whose_tasks_were_made_of_others_is_refused() -> None:
    made = sampler(drawn_from())
    made.note(told(0, [made.tasks["a 10"]], mixed="a"))
    held = SimpleNamespace(stateful_callbacks={"TaskSampler": made.state()}, global_step=1)
    other = TaskSampler(drawn_from(), Forms().tasks(4, 20, {}))
    with pytest.raises(ConfigError, match="fresh tasks were made of other tasks: a 10"):
        other.on_train_begin(None, held, None)


def test_what_cannot_be_is_said_before_the_training(tmp_path: Path) -> None:
    def config(kind: str = "Forms") -> RlConfig:
        return structs.replace(drawn_from(kind=kind), model=str(tmp_path))

    config().check()
    with pytest.raises(ConfigError, match=r"cannot draw a task anew; allowed: gtk-forms, .* `redraw\(task, seed, opt"):
        config(kind="Fixed").check()
    with pytest.raises(ConfigError, match=r"redraw must give an eval\.desktop\.Task with seed 14, not"):
        config(kind="Odd").check()
    with pytest.raises(ConfigError, match="fresh: the environment click cannot"):
        structs.replace(config(), environment="click", options={"split": "train"}).check()
    with pytest.raises(ConfigError, match="fresh: needs task_order: curriculum"):
        structs.replace(config(), task_order="even").check()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("login", {"split": "train"}),
        ("gtk-login", {"split": "train"}),
        ("gtk-forms", {"split": "train", "kinds": ["menu", "select"]}),
        ("linux-desktop", {"split": "train", "templates": ["mousepad-append", "galculator-compute"]}),
    ],
)
def test_our_environments_draw_what_they_draw_themselves(name: str, options: dict[str, Any]) -> None:
    """The task of a template and a seed is the same whoever asks, and its key tells it from all others."""
    drawn = redrawing(name)
    later = tasks_of(name, 40, 30, options)
    for task in tasks_of(name, 40, 0, options):
        same = [each for each in later if each.seed == 33 and each.tags == task.tags and each.cluster == task.cluster]
        assert drawn(task, 33, options) in same
        assert len({task_key(each) for each in same}) == len(same)
        with pytest.raises(ConfigError, match="the train split has the seeds"):
            drawn(task, 1_000_000, options)
