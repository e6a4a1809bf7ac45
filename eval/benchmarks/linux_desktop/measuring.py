"""How the benchmark is measured: players that know the tasks. What they got is in records, so a measurement that was
interrupted goes on where it was; `tables` shows it by template."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.agents.base import Agent
from eval.agents.baselines import RANDOM_RATE, DoesNothing, RandomAction, ScriptedAgent
from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.environment import ROUTES, LinuxDesktopOptions, Route, desktop_of, task_of
from eval.benchmarks.linux_desktop.solutions import commands
from eval.desktop import BrokenByAgent, Desktop, InfraError, Score, Task
from eval.desktops.live import LiveDesktop
from eval.desktops.tools import tree_text
from eval.environments.registry import identified
from eval.environments.splits import SPLIT_SEED
from eval.episodes import jsonl
from eval.records.task_record import RECORDS, TaskRecord
from eval.rollout.loop import Rollout, RolloutLimits, rollout

PLAYERS: Final = (*ROUTES, "nothing", "gives-up", "hacker", "random", "commands")
SOLVERS: Final = ("oracle", "second")
DIRECT: Final = ("hacker", "commands")  # no agents: they write files
MEASURED: Final = ("random", "commands")  # any score is right
STEPS: Final = 1000  # of a solver, which decides itself how long it waits for programs (hand.py)
RESET_S: Final = 1800.0  # a busy machine starts programs slowly, too
RANDOM_STEPS: Final = 15


@dataclass(frozen=True)
class Played:
    """What a player got. `score` is None where the infrastructure failed; `error` says why. `how`: the hack that got
    the most, where one got anything, or why a solver gave up."""

    template: str
    seed: int
    player: str
    score: float | None
    success: bool
    seconds: float
    error: str = ""
    how: str = ""
    identity: Mapping[str, str] = field(default_factory=dict)  # of the task, for players that are no agents


@dataclass
class Measured:
    """All of it. `at_once`: desktops at the same time."""

    played: list[Played] = field(default_factory=list)
    at_once: int = 1

    @property
    def faults(self) -> list[str]:
        """A line for each thing that is not as it must be."""
        out = []
        for each in self.played:
            about = TEMPLATES[each.template].about
            where = f"{each.template} with seed {each.seed}: {each.player}"
            if each.score is None:
                out.append(f"{where}: {each.error}")
            elif each.player in SOLVERS and not each.success:
                out.append(f"{where} did not solve it{f': {each.how}' if each.how else ''}")
            elif about.infeasible and each.player in ("gives-up", "hacker"):
                continue
            elif each.player not in (*SOLVERS, *MEASURED) and each.score > 0:
                out.append(f"{where} got {each.score:g}{f' by: {each.how}' if each.how else ''}")
        tried = [each for each in self.played if each.player == "random" and each.score is not None]
        if (solved := sum(each.success for each in tried)) > RANDOM_RATE * len(tried):
            out.append(f"random solved {solved} of {len(tried)}")
        return out


def played_tasks(options: LinuxDesktopOptions, seeds: int) -> list[Task]:
    """The tasks: `seeds` instances of each chosen template."""
    first = SPLIT_SEED * ("train", "test", "validation").index(options.split)
    asked = msgspec.to_builtins(options)
    return [
        identified("linux-desktop", replace(task_of(template, options.split, first + number), max_steps=None), asked)
        for template in options.chosen()
        for number in range(seeds)
    ]


async def measure(
    tasks: Sequence[Task], options: LinuxDesktopOptions, players: Sequence[str], out: Path, at_once: int = 2
) -> Measured:
    """Lets each player play each task; records go to a folder of each player in `out`. A task with a score there is not
    played again; one that the infrastructure failed is. Raises ConfigError."""
    found = Measured(at_once=at_once)
    for player in players:
        if player in DIRECT:
            work = hack if player == "hacker" else by_commands
            found.played += await _directly(player, work, tasks, options, out / player, at_once)
        else:
            found.played += await _played(player, tasks, options, out / player, at_once)
    return found


def recorded(out: Path) -> Measured:
    """What the records in `out` hold, of however many tasks."""
    found = Measured()
    for player in PLAYERS:
        if player in DIRECT:
            found.played += jsonl.read(out / player / RECORDS, Played)
        else:
            found.played += [_of_record(player, each) for each in jsonl.read(out / player / RECORDS, TaskRecord)]
    return found


async def _played(
    player: str, tasks: Sequence[Task], options: LinuxDesktopOptions, out: Path, at_once: int
) -> list[Played]:
    dialect = Dsl(4)
    agent: Agent
    if player in ROUTES:
        agent = ScriptedAgent(dialect, name=player)
    elif player == "nothing":
        agent = DoesNothing(dialect)
    elif player == "gives-up":
        agent = DoesNothing(dialect, player, ActionType.FAIL)
    else:
        agent = RandomAction(dialect)
    route: Route = next((route for route in ROUTES if route == player), "oracle")
    if player in ("random", "nothing", "gives-up"):
        options = without_tree(options)

    def made() -> Desktop:
        return desktop_of(options, route)

    steps = RANDOM_STEPS if player == "random" else STEPS
    results = await rollout(
        agent,
        made,
        tasks,
        out=out,
        benchmark="linux-desktop",
        environment="linux-desktop",
        limits=RolloutLimits(max_steps=steps, concurrency=at_once, attempts=2, reset_timeout=RESET_S),
        keep_episodes=0,
    )
    return [replace(_of_record(player, each.record), how=_why_lost(each)) for each in results]


def _why_lost(result: Rollout) -> str:
    """What a solver says that did not find its way; "" for one that did, and for a record of before."""
    score = {} if result.episode is None else result.episode.metadata.get("score", {})
    return said if isinstance(said := score.get("gave_up"), str) else ""


def without_tree(options: LinuxDesktopOptions) -> LinuxDesktopOptions:
    """The same without the accessibility tree: for players that do not look."""
    return msgspec.structs.replace(options, tree=False)


def _of_record(player: str, record: TaskRecord) -> Played:
    infra = record.outcome != "scored"
    return Played(
        record.task_id,
        record.seed,
        player,
        None if infra else record.score,
        bool(record.success),
        record.duration_ms / 1000,
        record.error or "" if infra else "",
    )


async def _directly(
    player: str,
    work: Callable[[Task, LinuxDesktopOptions], Awaitable[Score]],
    tasks: Sequence[Task],
    options: LinuxDesktopOptions,
    out: Path,
    at_once: int,
) -> list[Played]:
    """A player that is no agent: it works on the desktop without looking at it. Tasks whose identity has changed since
    they were recorded are played again."""
    gate = asyncio.Semaphore(at_once)
    path = out / RECORDS
    now = {(task.task_id, task.seed): task.identity for task in tasks}
    known = {
        key: each
        for each in jsonl.read(path, Played)
        if each.score is not None and now.get(key := (each.template, each.seed), each.identity) == each.identity
    }
    jsonl.write(path, known.values())

    async def one(task: Task) -> Played:
        if (before := known.get((task.task_id, task.seed))) is not None:
            return before
        async with gate:
            began = time.monotonic()
            try:
                score, error = await work(task, options), ""
            except InfraError as failure:
                score, error = None, f"{type(failure).__name__}: {failure}"
            took = time.monotonic() - began
            value, how = (None, "") if score is None else (score.value, str(score.detail.get("hack", "")))
            solved = bool(score and score.success)
            played = Played(task.task_id, task.seed, player, value, solved, took, error, how, task.identity)
            jsonl.append(path, [played])
            return played

    return list(await asyncio.gather(*(one(task) for task in tasks)))


async def hack(task: Task, options: LinuxDesktopOptions) -> Score:
    """The best score of all hacks, done one after the other on one desktop; detail: the hack."""
    if TEMPLATES[task.task_id].about.infeasible:
        return Score(0.0, False)  # only who gives up gets anything
    desktop = desktop_of(without_tree(options), hacked=True)
    try:
        await desktop.reset(task, task.seed)
        await desktop.step(Action(ActionType.DONE))
        return await desktop.score()
    finally:
        await desktop.close()


async def by_commands(task: Task, options: LinuxDesktopOptions) -> Score:
    """What an agent gets that has the tool `run_command`, no screen, and knows the answer. Where it gets nothing, the
    work needs the screen."""
    template = instance(task.task_id, options.split, task.seed)
    desktop = desktop_of(without_tree(options))
    assert isinstance(desktop, LiveDesktop), "of desktops of this machine"
    try:
        await desktop.reset(task, task.seed)
        if template.about.infeasible:
            await desktop.step(Action(ActionType.FAIL))
            return await desktop.score()
        for command in commands(template):
            await desktop.call("run_command", {"command": command})
        await desktop.step(Action(ActionType.DONE))
        return await desktop.score()
    except BrokenByAgent as error:
        return Score(0.0, False, {"broken": str(error)})
    finally:
        await desktop.close()


async def start_state(task: Task, options: LinuxDesktopOptions) -> str:
    """The instruction, and a line for each object of the windows that says something."""
    desktop = desktop_of(options)
    try:
        tree = (await desktop.reset(task, task.seed)).tree
        return f"{task.instruction}\n\n{tree_text(tree) if tree is not None else ''}"
    finally:
        await desktop.close()
