"""Which tasks a generation tries: evenly, or by the curriculum, whose state each checkpoint holds, and fresh ones.

A fresh task is a further instance of a template that the model solves sometimes; the training makes it for itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from eval.config import ConfigError, ResumeError
from eval.desktop import Task
from eval.environments.registry import redrawing
from training.rl.config import RlConfig
from training.rl.rollouts.curriculum import Curriculum, TaskEffort
from training.rl.rollouts.generation import RolloutGeneration


class MadeTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`of`: the key of the first task of its template, one of the configuration's; `seed`: its own."""

    of: str
    seed: Annotated[int, msgspec.Meta(ge=0)]


class _State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    made: list[MadeTask]
    next: Annotated[int, msgspec.Meta(ge=0)]


class FreshTasks:
    """Makes and keeps them.

    A group of which some rollouts failed and some succeeded makes `each` new tasks. One that failed whole makes none:
    more of what is too hard would take the place of what can be learned. A new task begins with its template's record,
    and the weight of one that was never tried. Where there are more than `most`, those that are drawn least go, the
    oldest first. The idea of new tasks from failures, chosen by how likely they are to be solved, is WebRL's (arXiv
    2411.02337), whose tasks a language model writes.
    """

    def __init__(self, config: RlConfig, given: Mapping[str, Task]) -> None:
        assert config.fresh is not None
        self.fresh, self.options = config.fresh, config.options
        self.redraw = redrawing(config.environment)
        self.given = dict(given)
        self.made: dict[str, MadeTask] = {}  # by key, the oldest first
        self.next = config.fresh_seed

    def after(self, task: Task) -> dict[str, Task]:
        """The new tasks that a mixed group of this task makes, by key."""
        of = self.made[task_key(task)].of if task_key(task) in self.made else task_key(task)
        found = {}
        for _ in range(self.fresh.each):
            one = MadeTask(of=of, seed=self.next)
            try:
                new = self._drawn(one)
            except ConfigError:  # the split has no more seeds
                break
            self.next += 1
            if task_key(new) in self.given:
                continue
            self.made[task_key(new)] = one
            found[task_key(new)] = new
        return found

    def _drawn(self, one: MadeTask) -> Task:
        return self.redraw(self.given[one.of], one.seed, self.options)

    def leaving(self, curriculum: Curriculum, used: Collection[str]) -> list[str]:
        """The keys of those that go, which are forgotten. `used`: keys of tasks that were drawn and must stay."""
        free = sorted((name for name in self.made if name not in used), key=curriculum.weight)  # stable: oldest first
        gone = free[: max(0, len(self.made) - self.fresh.most)]
        for name in gone:
            del self.made[name]
        return gone

    def state(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(_State(made=list(self.made.values()), next=self.next))
        return plain

    def restore(self, state: Mapping[str, Any] | None) -> dict[str, Task]:
        """The tasks of a saved state, by key. Raises ConfigError for one of other tasks."""
        try:
            saved = _State(made=[], next=self.next) if state is None else msgspec.convert(state, _State)
        except msgspec.ValidationError as error:
            raise ResumeError(f"resume: the state of fresh tasks: {error}") from None
        if odd := sorted({one.of for one in saved.made} - set(self.given)):
            raise ResumeError(f"resume: fresh tasks were made of other tasks: {', '.join(odd[:5])}")
        tasks = [self._drawn(one) for one in saved.made]
        self.made, self.next = {task_key(task): one for task, one in zip(tasks, saved.made, strict=True)}, saved.next
        return {task_key(task): task for task in tasks}


def task_key(task: Task) -> str:
    return f"{task.task_id} {task.seed}"


BEFORE: Final = "TaskDrawer"  # its name in older checkpoints


class TaskSampler(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Draws the tasks of each generation.

    What `draw` gives depends on the seed, the generation and what `note` was told of those before: a generation that
    was broken off and is tried again gets the same tasks.
    """

    def __init__(self, config: RlConfig, tasks: Sequence[Task]) -> None:
        self.config = config
        self.tasks = {task_key(task): task for task in tasks}
        self.fresh = None if config.fresh is None else FreshTasks(config, self.tasks)
        self.curriculum = Curriculum(self.tasks, config.seed) if config.task_order == "curriculum" else None
        self.after = 0  # draws of the curriculum, or places in the even order, once the generation counts
        self.drawn = 0  # places of the even order that are used up; with dynamic sampling and asynchronous only
        self.unused: Callable[[], Sequence[Task]] = tuple  # drawn, and not in an update yet: asynchronous only
        self.before: tuple[Task, ...] = ()  # these, as a checkpoint had them

    def draw(self, number: int) -> list[Task]:
        """The tasks of generation `number`."""
        count = self.config.tasks_per_generation
        if self.curriculum is not None:
            self.after = self.curriculum.draws
        else:
            self.after = number * count if self.config.most_groups is None else self.drawn
        return self.further(count)

    def further(self, count: int) -> list[Task]:
        """More tasks for the generation that was drawn last."""
        if self.curriculum is not None:
            before, self.curriculum.draws = self.curriculum.draws, self.after
            drawn = [self.tasks[name] for name in self.curriculum.draw(count)]
            self.after, self.curriculum.draws = self.curriculum.draws, before
            return drawn
        tasks = list(self.tasks.values())
        found = []
        start, self.after = self.after, self.after + count
        for place in range(start, start + count):
            turn, at = divmod(place, len(tasks))
            order = list(range(len(tasks)))
            random.Random(f"{self.config.seed} tasks {turn}").shuffle(order)  # each pass over all has its own order
            found.append(tasks[order[at]])
        return found

    def effort(self, task: Task) -> TaskEffort:
        """How many rollouts a group of this task has, and how many turns each may take."""
        config = self.config
        if self.curriculum is None:
            return TaskEffort(config.group_size)
        rollouts, turns = config.group_size, None
        if config.most_rollouts is not None:
            rollouts = self.curriculum.rollouts(task_key(task), rollouts, config.most_rollouts)
        if config.turn_slack is not None:
            turns = self.curriculum.turns(task_key(task), config.limits.steps_of(task), config.turn_slack)
        return TaskEffort(rollouts, turns)

    def note(self, made: RolloutGeneration) -> None:
        """Tells what became of the generation that was drawn last."""
        if self.curriculum is None:
            self.drawn = self.after
            return
        self.curriculum.draws = self.after
        mixed: list[Task] = []
        for group in made.judged:
            outcomes = [bool(each.episode.success) for each in group.rollouts]
            self.curriculum.note(task_key(group.task), outcomes, [len(each.turns) for each in group.rollouts])
            if len(set(outcomes)) > 1:
                mixed.append(group.task)
        if self.fresh is not None:
            self._renew(self.curriculum, self.fresh, mixed)

    def _renew(self, curriculum: Curriculum, fresh: FreshTasks, mixed: Sequence[Task]) -> None:
        """Makes fresh tasks after groups of these, and lets the least useful go."""
        for task in mixed:
            for name, new in fresh.after(task).items():
                self.tasks[name] = new
                curriculum.join(name, task_key(task))
        for name in fresh.leaving(curriculum, {task_key(each) for each in self.unused()}):
            del self.tasks[name]
            curriculum.leave(name)

    def state(self) -> dict[str, Any]:
        held = None if self.curriculum is None else self.curriculum.state()
        told: dict[str, Any] = {"curriculum": held, "drawn": self.drawn}
        if self.fresh is not None:
            told["fresh"] = self.fresh.state()
        if unused := [task_key(task) for task in self.unused()]:  # they are among what was drawn: it goes on after them
            told |= {"unused": unused, "drawn": self.after if held is None else self.drawn}
            told["curriculum"] = None if held is None else {**held, "draws": self.after}
        return {"args": {}, "attributes": told}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Raises ConfigError for a checkpoint's state of other tasks."""
        held_by = state.stateful_callbacks or {}
        saved = held_by.get(type(self).__name__, held_by.get(BEFORE, {}))
        attributes = saved.get("attributes", {}) if isinstance(saved, dict) else {}
        held = attributes.get("curriculum")
        if state.global_step and self.fresh is not None and self.curriculum is not None:
            self.tasks = {**self.fresh.given, **self.fresh.restore(attributes.get("fresh"))}
            self.curriculum = Curriculum(self.tasks, self.config.seed)
        if state.global_step:
            self.drawn = int(attributes.get("drawn", 0))
            self.before = tuple(self.tasks[name] for name in attributes.get("unused", ()) if name in self.tasks)
        if self.curriculum is not None and held is not None and state.global_step:
            self.curriculum.restore(held)
        self.after = self.drawn if self.curriculum is None else self.curriculum.draws
