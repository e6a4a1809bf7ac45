"""Which tasks of an evaluation keep their episode with its pictures: failures first, to be looked at.

Of the tasks in their order the first N that failed are kept (those that the infrastructure failed, or a limit cut,
count) and the first N that were solved. So the set follows from the results alone, however many run at once and
however often the evaluation was interrupted. What still runs is recorded in a folder of the system's; the results never
hold more than 2 N episodes, and one that moves.
"""

from __future__ import annotations

import bisect
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from eval.desktop import Task
from eval.episodes import is_complete
from eval.records.task_record import ENDS, EPISODES, End, TaskRecord, end_of, episode_id


class KeptEpisodes:
    """Those in `out` of one rollout over `tasks`.

    count  N of each kind; None keeps all, 0 none
    """

    def __init__(self, out: Path, tasks: Sequence[Task], count: int | None) -> None:
        self.folder = out / EPISODES
        self.names = [episode_id(task) for task in tasks]
        self.count = count
        self.kept: dict[End, list[int]] = {end: [] for end in ENDS}  # in the order of the tasks
        self.running: Path | None = None  # where the tasks that run are recorded

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While it is open, tasks may run."""
        if not self.count:
            yield
            return
        with tempfile.TemporaryDirectory(prefix="episodes-") as folder:
            self.running = Path(folder)
            yield

    def go_on(self, known: Mapping[int, TaskRecord]) -> None:
        """Takes over what an earlier attempt kept: by the tasks' numbers, the records that stand. The episodes of tasks
        that are run again go, and what is too many."""
        if not self.count:
            return
        for index, name in enumerate(self.names):
            if index in known and is_complete(self.folder / name):
                self._admit(index, end_of(known[index]))
            else:
                shutil.rmtree(self.folder / name, ignore_errors=True)

    def wanted(self, index: int) -> tuple[End, ...]:
        """The ends with which a task that runs now would be kept, by what is known."""
        return tuple(end for end in ENDS if self._place(index, end))

    def folder_of(self, index: int) -> Path | None:
        """Where a task's episode is recorded; None: nowhere."""
        if self.count is None:
            return self.folder / self.names[index]
        if self.running is None or not self.wanted(index):
            return None
        return self.running / self.names[index]

    def ended(self, index: int, record: TaskRecord) -> TaskRecord:
        """Keeps what was recorded of a task, or throws it away. Gives the record, which names the folder if there is
        one."""
        if self.running is None:
            return record
        recorded = self.running / self.names[index]
        if is_complete(recorded) and self._admit(index, end_of(record)):
            self.folder.mkdir(parents=True, exist_ok=True)
            whole = self.folder / f".{self.names[index]}"  # the move may copy, and is not cut off in the middle
            shutil.rmtree(whole, ignore_errors=True)
            shutil.move(recorded, whole)
            shutil.rmtree(self.folder / self.names[index], ignore_errors=True)
            whole.rename(self.folder / self.names[index])
        shutil.rmtree(recorded, ignore_errors=True)
        return self.record_of(index, record)

    def record_of(self, index: int, record: TaskRecord) -> TaskRecord:
        """The record, which names its folder only while that is kept."""
        if self.count is None or record.episode is None:
            return record
        held = any(index in kept for kept in self.kept.values())
        return record if held else msgspec.structs.replace(record, episode=None)

    def _place(self, index: int, end: End) -> bool:
        kept = self.kept[end]
        return len(kept) < (self.count or 0) or index < kept[-1]

    def _admit(self, index: int, end: End) -> bool:
        """Whether a task is among those that are kept; what it displaces goes."""
        if not self._place(index, end):
            shutil.rmtree(self.folder / self.names[index], ignore_errors=True)
            return False
        kept = self.kept[end]
        bisect.insort(kept, index)
        if len(kept) > (self.count or 0):
            shutil.rmtree(self.folder / self.names[kept.pop()], ignore_errors=True)
        return True
