"""Lets the families play: each in a rollout of its own, so that limits, records and going on are the rollout's. A
player does what was written down before, and looks at nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.actions import Action, ActionType
from eval.actions.dialects.base import Dialect
from eval.actions.dialects.dsl import Dsl
from eval.agents.base import Agent, Decision
from eval.agents.baselines import DoesNothing, RandomAction
from eval.agents.computer import Computer, LoopingAgent
from eval.audit.families import FAMILIES, PlayerFamily
from eval.audit.moves import FAIL, Way, replayed
from eval.audit.verdicts import AuditReport, FamilyVerdict, not_played, verdict_of
from eval.config import ConfigError
from eval.desktop import ActionRefused, Desktop, NotRunHere, Observation, Task, ToolDesktop, WrappedDesktop
from eval.environments.registry import environment, for_hacker, knows_hacks, redrawing, tasks_of, written_options
from eval.episodes import EpisodeError, ToolCall, read_episode
from eval.records.earlier_results import repeated
from eval.rollout.loop import Rollout, rollout
from eval.run import RunConfig

ENDS = (ActionType.DONE, ActionType.FAIL)
MOST_STEPS = 1000  # of an expert, which decides itself how long it waits for programs


class BlindPlayer:
    """Goes one way of a task, blindly: that of the task's trial. What the desktop refuses is left out, but where it
    has no tools a way with a call did not happen, and is no try."""

    calls_tools = True

    def __init__(self, name: str, ways: Callable[[Task], Sequence[Way]], dialect: Dialect) -> None:
        self.name = name
        self.ways = ways
        self.dialect = dialect

    async def run(self, computer: Computer) -> None:
        for move in self.ways(computer.task)[computer.task.trial].moves:
            if isinstance(move, Action):
                await computer.answer(said(self.dialect, move))
                continue
            called = move
            if isinstance(called, str):
                called = ToolCall(name="run_command", arguments={"command": called})
            computer.begin(Decision(f"{called.name} {called.arguments}", None))
            try:
                await computer.call(called)
            except ActionRefused as why:
                raise NotRunHere(str(why)) from None


class Expert:
    """Follows the environment's own expert; where it has none, it gives up."""

    def __init__(self, dialect: Dialect, name: str = "expert") -> None:
        self.name = name
        self.dialect = dialect

    async def run(self, computer: Computer) -> None:
        while True:
            shown = computer.observation.expected
            await computer.answer(said(self.dialect, FAIL if shown is None else shown.action))


class LeftBehind(WrappedDesktop):
    """A desktop on which the expert has solved the task before, and which was then reset for it again."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """Raises NotRunHere where no expert comes to an end."""
        seen = await super().reset(task, seed)
        for _ in range(MOST_STEPS):
            if seen.expected is None and not seen.done:
                raise NotRunHere("there is no expert")
            if seen.done or (seen.expected is not None and seen.expected.action.type is ActionType.FAIL):
                break
            assert seen.expected is not None
            action = seen.expected.action
            seen = await self.step(action)
            if action.type is ActionType.DONE:
                break
        else:
            raise NotRunHere(f"the expert is not at its end after {MOST_STEPS} actions")
        return await super().reset(task, seed)


def said(dialect: Dialect, action: Action) -> Decision:
    """An answer with this action; its text rounds what the action has exactly."""
    return Decision(dialect.format_response(action), action)


DIALECT: Final = Dsl(4)
Key = tuple[str, int]
ALWAYS: Final = ("nothing", "gives-up")  # play also where a task pays whoever does nothing


def key_of(task: Task) -> Key:
    return task.task_id, task.seed


@dataclass
class Audit:
    """One audit: its configuration, where its records go, and what it has found so far.

    tries     of a player that draws: random actions, and jitter
    solved    task -> what the expert did to solve it; None: it has not played yet
    free      tasks that pay whoever does nothing: all others would be paid there, too, so they do not play them
    """

    config: RunConfig
    out: Path
    tries: int = 3
    allowed: Mapping[str, float] = field(default_factory=dict)
    tasks: list[Task] = field(init=False)
    solved: dict[Key, list[Action]] | None = None
    free: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        chosen = self.config
        self.world = environment(chosen.environment)
        count = chosen.tasks.number(self.world, chosen.options)
        self.tasks = tasks_of(chosen.environment, count, chosen.tasks.seed, chosen.options)

    @property
    def feasible(self) -> list[Task]:
        return [task for task in self.tasks if task.feasible is not False]

    async def report(self, families: Sequence[str]) -> AuditReport:
        """Plays what has no score in `out` yet. Raises ConfigError."""
        found = []
        for name in families:
            found.append(verdict := await self.family(FAMILIES[name]))
            print(f"{name}: {verdict.passed} of {verdict.tries} passed: {verdict.verdict}", flush=True)
        return AuditReport(
            benchmark=self.config.benchmark,
            version=self.config.version,
            environment=self.config.environment,
            tasks=len(self.tasks),
            feasible=len(self.feasible),
            families=found,
        )

    async def family(self, family: PlayerFamily) -> FamilyVerdict:
        """What one family gets."""
        able = self.feasible if family.feasible else self.tasks
        tasks = [task for task in able if key_of(task) not in self.free or family.name in ALWAYS]
        without = [f"{len(able) - len(tasks)} tasks pay whoever does nothing"] if len(tasks) < len(able) else []
        if not tasks:
            return not_played(family, without[0] if without else "no task can be done")
        verdict = await self._played(family, tasks, without)
        if family.name == "nothing":
            self.free |= {(task.task_id, task.seed) for task in verdict.tasks if task.paid}
        return verdict

    async def _played(self, family: PlayerFamily, tasks: Sequence[Task], without: Sequence[str]) -> FamilyVerdict:
        if family.name == "random":
            results = await self._play("random", RandomAction(DIALECT), repeated(tasks, self.tries), steps=None)
            return self._verdict(family, [(each, f"try {each.record.trial + 1}") for each in results], without)
        if family.needs == "commands" and not await self._commands():
            return not_played(family, "the environment's desktops run no commands")
        if family.needs == "hacker":
            if not knows_hacks(self.config.environment):
                return not_played(family, "the environment has no method `hacker`")
            results = await self._play("hacker", DoesNothing(DIALECT, "hacker"), tasks, for_hacker)
            return self._verdict(family, [(each, self._hack(each)) for each in results], without)
        if family.name == "left-behind":
            return await self._left_behind(family, tasks, without)
        if family.ways is not None:
            return await self._ways(family, {key_of(task): family.ways(task) for task in tasks}, tasks, without)
        return await self._replays(family, tasks, without)

    async def _commands(self) -> bool:
        """Whether a desktop of the environment has tools."""
        desktop = self.world.desktop(self.config.options)
        try:
            return isinstance(desktop, ToolDesktop)
        finally:
            await desktop.close()

    async def _left_behind(self, family: PlayerFamily, tasks: Sequence[Task], without: Sequence[str]) -> FamilyVerdict:
        solved = await self._solved()
        able = [task for task in tasks if key_of(task) in solved]
        if not able:
            return not_played(family, "no task has an expert that solves it")

        def made(name: str) -> Callable[[Mapping[str, Any]], Desktop]:
            return lambda options: LeftBehind(environment(name).desktop(options))

        results = await self._play(family.name, DoesNothing(DIALECT, family.name), able, made)
        named = [(each, "done after a reset") for each in results]
        return self._verdict(family, named, [*without, *_without(tasks, able)])

    async def _replays(self, family: PlayerFamily, tasks: Sequence[Task], without: Sequence[str]) -> FamilyVerdict:
        solved = await self._solved()
        if family.needs == "another seed":
            found = await self._of_other_seeds(tasks)
            if isinstance(found, str):
                return not_played(family, found)
        elif family.needs == "another task":
            found = {key_of(task): way for task in tasks if (way := self._of_another(task, solved))}
        else:
            found = {key_of(task): solved[key_of(task)] for task in tasks if key_of(task) in solved}
        able = [task for task in tasks if key_of(task) in found]
        if not able:
            return not_played(family, "there is no success of an expert to repeat")
        ways = {key: replayed(actions, self.tries) for key, actions in found.items()}
        return await self._ways(family, ways, able, [*without, *_without(tasks, able)])

    def _of_another(self, task: Task, solved: Mapping[Key, list[Action]]) -> list[Action] | None:
        """What solved the next task of another kind."""
        at = self.tasks.index(task)
        for other in (*self.tasks[at + 1 :], *self.tasks[:at]):
            if other.feasible is not False and _kind(other) != _kind(task) and key_of(other) in solved:
                return solved[key_of(other)]
        return None

    async def _of_other_seeds(self, tasks: Sequence[Task]) -> dict[Key, list[Action]] | str:
        """Task -> what solved it with another seed; why, where tasks have none."""
        try:
            draw = redrawing(self.config.environment)
        except ConfigError:
            return "the environment draws no task anew (a method `redraw`)"
        span = max(task.seed for task in self.tasks) - min(task.seed for task in self.tasks) + 1
        others: dict[Key, Task] = {}
        for task in tasks:
            for seed in (task.seed + span, task.seed - span):
                try:
                    others[key_of(task)] = draw(task, seed, self.config.options)
                    break
                except ConfigError:  # a seed of another split
                    continue
        drawn = list({key_of(other): other for other in others.values()}.values())
        solved = await self._solutions("expert-other-seed", drawn) if drawn else {}
        return {key: solved[key_of(other)] for key, other in others.items() if key_of(other) in solved}

    async def _solved(self) -> dict[Key, list[Action]]:
        if self.solved is None:
            self.solved = await self._solutions("expert", self.feasible)
        return self.solved

    async def _solutions(self, folder: str, tasks: Sequence[Task]) -> dict[Key, list[Action]]:
        """Task -> all actions of the expert, where it solved it."""
        results = await self._play(folder, Expert(DIALECT), tasks, keep_all=True)
        return {
            (each.record.task_id, each.record.seed): actions
            for each in results
            if each.record.success and (actions := self._actions(folder, each))
        }

    def _actions(self, folder: str, result: Rollout) -> list[Action]:
        episode = result.episode
        if episode is None and result.record.episode is not None:
            try:
                episode = read_episode(self.out / folder / result.record.episode)
            except EpisodeError as error:
                raise ConfigError(f"{error}; delete {self.out / folder} to play it again") from None
        return [] if episode is None else [action for step in episode.steps for action in step.actions]

    async def _ways(
        self, family: PlayerFamily, ways: Mapping[Key, list[Way]], tasks: Sequence[Task], without: Sequence[str] = ()
    ) -> FamilyVerdict:
        """Each way of a task is a trial of it."""
        most = max(len(some) for some in ways.values())
        tried = [task for task in repeated(tasks, most) if task.trial < len(ways[key_of(task)])]
        player = BlindPlayer(family.name, lambda task: ways[key_of(task)], DIALECT)
        results = await self._play(family.name, player, tried, commands=family.needs == "commands")
        named = [(r, ways[r.record.task_id, r.record.seed][r.record.trial].name) for r in results]
        return self._verdict(family, named, without)

    async def _play(
        self,
        folder: str,
        agent: Agent | LoopingAgent,
        tasks: Sequence[Task],
        made: Callable[[str], Callable[[Mapping[str, Any]], Desktop]] | None = None,
        *,
        steps: int | None = MOST_STEPS,
        keep_all: bool = False,
        commands: bool = False,
    ) -> list[Rollout]:
        """A rollout of these tasks into a folder of its own. `steps` None: as the configuration or the task says;
        `keep_all`: all episodes stay, for players that repeat them."""
        chosen = self.config
        make = self.world.desktop if made is None else made(chosen.environment)
        limits = msgspec.structs.replace(chosen.limits, max_steps=steps or chosen.limits.max_steps, refused=None)
        return await rollout(
            agent,
            lambda: make(chosen.options),
            tasks,
            out=self.out / folder,
            benchmark=chosen.benchmark,
            environment=chosen.environment,
            version=chosen.version,
            options=written_options(chosen.environment, chosen.options),
            interface="both" if commands else "gui",
            limits=limits,
            keep_episodes=None if keep_all else chosen.keep_episodes,
        )

    def _verdict(
        self, family: PlayerFamily, results: Sequence[tuple[Rollout, str]], without: Sequence[str] = ()
    ) -> FamilyVerdict:
        named = [(result.record, way) for result, way in results]
        return verdict_of(family, named, self.allowed.get(family.name, family.allowed), without)

    def _hack(self, result: Rollout) -> str:
        """The way that a hacker's desktop tells."""
        episode = result.episode
        if episode is None and result.record.episode is not None:
            episode = read_episode(self.out / "hacker" / result.record.episode)
        told = {} if episode is None else episode.metadata.get("score", {})
        return str(told.get("hack", "not told"))


def _without(tasks: Sequence[Task], able: Sequence[Task]) -> list[str]:
    left = len(tasks) - len(able)
    return [f"{left} of {len(tasks)} tasks have no such success to begin with"] if left else []


def _kind(task: Task) -> str:
    return task.cluster or task.task_id
