"""Which task a client's episode is about, and which try at it that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from eval.config import ConfigError
from eval.desktop import Task
from eval.environments.registry import redrawing, tasks_of
from eval.records.task_record import TaskRecord
from eval.serve.config import ServeConfig

PLAIN: Final = Task("desktop", "")  # of a plain desktop, on which nobody asks for anything
NAMED: Final = 5  # tasks that an error names


class RequestRefused(Exception):
    """What a client asked for cannot be done, and nothing changed. The message is for the client.

    kind  unknown_task, no_episode, full or bad_request
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class OfferedTasks:
    """The tasks that clients may ask for, and how often each was begun.

    known  records of earlier episodes in the same folder: their tries are not given again
    plain  how many tries at a plain desktop are not given again
    """

    def __init__(self, config: ServeConfig, known: Iterable[TaskRecord] = (), plain: int = 0) -> None:
        """Raises ConfigError."""
        self.config = config
        if config.tasks is None:
            self.tasks = [PLAIN]
        else:
            self.tasks = tasks_of(config.environment, config.tasks.count, config.tasks.seed, config.options)
        self._begun: Counter[tuple[str, int]] = Counter({(PLAIN.task_id, PLAIN.seed): plain})
        for record in known:
            place = record.task_id, record.seed
            self._begun[place] = max(self._begun[place], record.trial + 1)
        self._next = 0

    def take(self, task_id: str | None = None, seed: int | None = None) -> Task:
        """The task of this id and seed, as the next try at it; without both the next of all, in their order.

        Raises RequestRefused for one that is not offered.
        """
        task = self._chosen(task_id, seed)
        place = task.task_id, task.seed
        trial = self._begun[place]
        self._begun[place] += 1
        return replace(task, trial=trial)

    def _chosen(self, task_id: str | None, seed: int | None) -> Task:
        if task_id is None and seed is None:
            self._next += 1
            return self.tasks[(self._next - 1) % len(self.tasks)]
        found = [task for task in self.tasks if task_id in (None, task.task_id)]
        if not found:
            names = ", ".join(task.task_id for task in self.tasks[:NAMED])
            rest = f" and {len(self.tasks) - NAMED} more" if len(self.tasks) > NAMED else ""
            raise RequestRefused(
                "unknown_task", f"task {str(task_id)[:60]!r} is not offered here; there are {names}{rest}"
            )
        exact = next((task for task in found if seed in (None, task.seed)), None)
        return exact or self._redrawn(found[0], seed or 0)

    def _redrawn(self, task: Task, seed: int) -> Task:
        """The task of the same template with another seed. Raises RequestRefused."""
        try:
            if self.config.tasks is None:
                raise ConfigError("a plain desktop has no seed but 0")
            return redrawing(self.config.environment)(task, seed, self.config.options)
        except ConfigError as error:
            raise RequestRefused("unknown_task", f"seed {seed} is not offered here: {error}") from None
