"""Tasks that a training makes for itself: further instances of templates that the model solves sometimes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

import msgspec

from eval.config import ConfigError, ResumeError
from eval.desktop import Task
from eval.environments.registry import redrawing
from training.rl.config import RlConfig
from training.rl.rollouts.curriculum import Curriculum


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
