"""The rollout loop of evaluation and of RL: many episodes at once, each on a desktop of its own.

The rollout owns the episode: its steps, records, time limits and end (`eval.agents.computer`). An agent that runs a
loop of its own works on the guarded computer; one that only answers gets a loop around it. A step is one answer of the
model, with one action or several.

An episode ends when the agent says done or fail, when the environment says that it is over, after the last allowed
step, or at the limit of answers that are no action, or cannot be done. Its score is the environment's judgement of the
final state, and 0 after such a limit (docs/explanation/answers.md). An InfraError, or a desktop or an agent that does
not answer in time, makes the episode `infra`: it is run again from the start, at most `attempts` times in all, and is
never a score. A task that cannot run on this machine is `not run`, and is not tried again. A record is written when
its episode ends, so a run that was cut off continues with the tasks that have none.
"""

from __future__ import annotations

import asyncio
import bisect
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from eval.agents.base import Agent
from eval.agents.batcher import looping_of
from eval.agents.computer import LoopingAgent
from eval.config import ConfigError
from eval.desktop import (
    Desktop,
    Interface,
    Task,
)
from eval.episodes import Episode, is_complete, jsonl
from eval.records.earlier_results import go_on, key_of, longest_first
from eval.records.task_record import ENDS, EPISODES, RECORDS, End, TaskRecord, end_of, episode_id
from eval.rollout.limits import RolloutLimits, scoring_rules
from eval.rollout.rank_sharing import Ranks, WorkQueue, digest_of, helping, serving
from eval.rollout.task_run import Rollout, TaskRun

__all__ = ["RECORDS", "Rollout", "RolloutLimits", "TaskRecord", "check_interface", "play", "rollout", "try_task"]


async def rollout(
    agent: Agent | LoopingAgent,
    make_desktop: Callable[[], Desktop],
    tasks: Sequence[Task],
    *,
    out: Path,
    benchmark: str,
    environment: str,
    version: str = "",
    options: Mapping[str, Any] | None = None,
    interface: Interface = "gui",
    limits: RolloutLimits | None = None,
    keep_episodes: int | None = None,
    on_end: Callable[[Rollout], None] = lambda _: None,
    ranks: Ranks | None = None,
    lenient: bool = False,
) -> list[Rollout]:
    """Runs every task once; results in the order of `tasks`.

    out            tasks.jsonl (a line per task, in task order at the end) and episodes/<id>/; a task that is scored
                   there already is not run again, one that was `infra` is
    version        of the benchmark, and `options` of the environment: both are written into the records
    interface      what the agents may use, on desktops that have tools
    keep_episodes  of the tasks in their order, the first N that failed and the first N that were solved keep their
                   folder with pictures (`eval.rollout.loop`); None keeps all
    on_end         called as each task ends, also for those found in `out`
    lenient        whether the agent's answers are repaired, which its rules then say
    ranks          the processes that share the tasks; all but rank 0 write nothing, and give []

    Raises ConfigError when `out` holds the results of another agent, benchmark or version, or results by other rules
    (environment, its options, answers that may be no action, a higher limit of steps), or when the agent or the
    environment raises one. A limit may be raised, and the task set may have another revision:
    `eval.records.earlier_results` says which tasks are run again then.
    """
    limits = limits or RolloutLimits()
    if getattr(agent, "one_at_a_time", False) and limits.concurrency > 1:
        raise ConfigError(f"limits.concurrency: agent {agent.name} works on one desktop at a time; allowed: 1")
    if len({episode_id(task) for task in tasks}) < len(tasks):
        raise ValueError("two tasks have the same id, seed and trial")
    path = out / RECORDS
    rules = scoring_rules(environment, options or {}, limits, lenient=lenient, interface=interface, agent=agent)
    turns = asyncio.Semaphore(limits.concurrency)
    slots = limits.concurrency + limits.spares

    def run_of(task: Task, looping: LoopingAgent, folder: Path | None) -> TaskRun:
        told = (limits, folder, agent.name, benchmark, environment, version, rules)
        return TaskRun(looping, make_desktop, task, *told, interface=interface, turns=turns)

    if ranks is not None and not ranks.leads:
        async with _looping(agent, limits) as looping:

            async def help_with(index: int, folder: Path) -> TaskRecord:
                return (await run_of(tasks[index], looping, None if keep_episodes == 0 else folder).attempts()).record

            await helping(ranks, slots, digest_of(tasks, agent.name), help_with)
        return []

    records = jsonl.read(path, TaskRecord)
    known = go_on(out, records, tasks, (benchmark, agent.name, version), rules, limits.steps_of)
    kept = KeptEpisodes(out, tasks, keep_episodes)
    standing = {index: known[key_of(task)] for index, task in enumerate(tasks) if key_of(task) in known}
    kept.go_on(standing)
    results = {index: Rollout(record) for index, record in standing.items()}
    for found in results.values():
        on_end(found)
    queue = WorkQueue(index for index in longest_first(tasks, records, limits.steps_of) if index not in results)

    def ended(index: int, done: Rollout) -> None:
        done = msgspec.structs.replace(done, record=kept.ended(index, done.record))
        jsonl.append(path, [done.record])
        results[index] = done
        on_end(done)

    async def slot(looping: LoopingAgent) -> None:
        while (index := await queue.take()) is not None:
            done = await run_of(tasks[index], looping, kept.folder_of(index)).attempts()
            if await queue.finish(index):
                ended(index, done)

    async def from_afar(index: int, record: TaskRecord, files: dict[str, bytes]) -> None:
        folder = kept.folder_of(index)
        if folder is not None and files:
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in files.items():
                (folder / name).write_bytes(data)
        ended(index, Rollout(record))

    async with _looping(agent, limits) as looping, AsyncExitStack() as stack:
        stack.enter_context(kept.recording())
        if ranks is not None:
            await stack.enter_async_context(serving(ranks, queue, digest_of(tasks, agent.name), from_afar, kept.wanted))
        async with asyncio.TaskGroup() as group:
            for _ in range(slots):
                group.create_task(slot(looping))
    done = [
        msgspec.structs.replace(results[index], record=kept.record_of(index, results[index].record))
        for index in range(len(tasks))
    ]
    jsonl.write(path, [each.record for each in done])
    return done


@asynccontextmanager
async def _looping(agent: Agent | LoopingAgent, limits: RolloutLimits) -> AsyncIterator[LoopingAgent]:
    """The agent, with a loop around it where it has none. Of several ConfigErrors in the block the first is raised."""
    try:
        async with looping_of(agent, limits.concurrency) as looping:
            yield looping
    except BaseExceptionGroup as group_error:
        if (error := _config_error(group_error)) is not None:
            raise error from None
        raise


async def try_task(
    agent: Agent | LoopingAgent,
    desktop: Callable[[], Desktop],
    task: Task,
    *,
    folder: Path,
    environment: str,
    interface: Interface = "gui",
    limits: RolloutLimits | None = None,
) -> Episode:
    """One task, once, into the episode folder `folder`, and not judged: `success` and `score` of the episode are None.

    metadata.agent_failure of the episode says why the agent failed by its answers, where it did. Raises InfraError.
    After that, and when it is cancelled, the folder holds what was recorded until then.
    """
    limits = limits or RolloutLimits()
    async with looping_of(agent, 1) as looping:
        name = agent.name
        run = TaskRun(
            looping, desktop, task, limits, folder, name, "", environment, "", {}, interface=interface, judge=False
        )
        return await run.once()


async def play(
    agent: LoopingAgent, desktop: Callable[[], Desktop], task: Task, *, environment: str, limits: RolloutLimits
) -> Episode:
    """One attempt at a task, judged; nothing is written. Raises InfraError, and what agent and environment raise."""
    run = TaskRun(agent, desktop, task, limits, None, agent.name, "", environment, "", {}, interface="gui")
    return await run.once()


def check_interface(agent: Agent | LoopingAgent, interface: Interface) -> None:
    """Raises ConfigError for an agent that could do nothing: it has tools only, and calls none. And for one that would
    not be offered the tools of its own servers."""
    if getattr(agent, "tool_servers", ()) and interface == "gui":
        raise ConfigError(f"interface: gui: agent {agent.name} has `tools`; allowed with them: both, tools")
    if interface == "tools" and not getattr(agent, "calls_tools", False):
        raise ConfigError(f"interface: tools: agent {agent.name} calls no tools; allowed for it: gui, both")


def _config_error(group: BaseExceptionGroup[BaseException]) -> ConfigError | None:
    """The first ConfigError of a group in which every error is one; None for any other group."""
    refused, rest = group.split(ConfigError)
    if refused is None or rest is not None:
        return None
    error: BaseException = refused
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ConfigError)
    return error


class KeptEpisodes:
    """The tasks of a rollout that keep their episode with its pictures, in `out`: failures first, to be looked at.

    Of the tasks in their order it keeps the first N that failed (those that the infrastructure failed, or a limit cut,
    count) and the first N that were solved. So the set follows from the results alone, however many run at once and
    however often the evaluation was interrupted. A folder of the system's holds what still runs; the results never hold
    more than 2 N episodes, and one that moves.

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
