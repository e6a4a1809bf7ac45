"""One generation of rollouts: groups of the same task and seed, each rollout on a desktop of its own, all at once.

A rollout that the infrastructure breaks (a desktop, a checker) is tried again, as often as `limits.attempts` says, and
then it is void: it is in no baseline and in no loss. A group with fewer than two rollouts left is dropped.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from eval.actions import ActionType
from eval.agents.base import Agent
from eval.agents.batcher import LINGER, Batcher
from eval.agents.computer import Computer
from eval.config import ConfigError
from eval.desktop import Desktop, InfraError, Observation, Task
from eval.rollout.loop import RolloutLimits, play
from training.reward.episodes import ToldEpisode, load_judge
from training.rl.config import RlConfig
from training.rl.rollouts.curriculum import DynamicBatch, TaskEffort
from training.rl.rollouts.generation import AskedTurn, PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import PolicyQuestion, SampledTurn
from training.rl.rollouts.screen_states import ScreenState, screen_state
from training.rl.rollouts.waiting_times import WaitingClock

LEAST = 2  # rollouts of a group: one alone has no baseline
POLL = 0.2  # seconds between two looks at a request to stop


class RolloutsStopped(Exception):
    """The training was asked to stop while rollouts ran; they are thrown away."""


class PolicyFailed(Exception):
    """The policy itself raised: no rollout is at fault."""


class KeptRollouts(Protocol):
    """Rollouts that were finished before the training was interrupted (`finished_rollouts`). A seat is the task's
    number in its generation and the rollout's in its group."""

    def find(self, group: int, member: int, task: Task, turns_allowed: int | None) -> PlayedRollout | None: ...
    def keep(self, group: int, task: Task, turns_allowed: int | None, played: PlayedRollout) -> None: ...


class RolloutAttempt:
    """One attempt at a rollout, as the loop of `eval.rollout.loop` runs an agent. `turns`: what was sampled so far.

    counted   whether the batcher counts this seat from outside; if not, it is counted while it asks
    states_kept  whether the states of the screen are kept
    screens_kept    whether what was asked is kept, for a teacher that is asked it again
    clock     measures how long it waits for answers
    """

    name = "policy"

    def __init__(
        self,
        batcher: Batcher,
        number: int,
        seed: str,
        *,
        counted: bool,
        states_kept: bool,
        screens_kept: bool,
        clock: WaitingClock,
    ) -> None:
        self.batcher = batcher
        self.number = number
        self.seed = seed
        self.counted = counted
        self.states_kept = states_kept
        self.screens_kept = screens_kept
        self.clock = clock
        self.turns: list[SampledTurn] = []
        self.states: list[ScreenState] = []
        self.asked: list[AskedTurn] = []
        self.end: Observation | None = None
        self.whole: ToldEpisode | None = None
        self.limited = False

    async def run(self, computer: Computer) -> None:
        if not self.counted:
            self.batcher.enter()
        try:
            while not computer.ended.is_set():
                past = computer.history()
                seed = f"{self.seed} {len(self.turns)}"
                if self.states_kept:
                    self.states.append(screen_state(computer.observation))
                if self.screens_kept:
                    self.asked.append(AskedTurn(computer.observation, past))
                asked = PolicyQuestion(past.task, past.past, past.demonstration, self.number, seed, self.turns)
                try:
                    with self.clock.ask():
                        decision = await self.batcher.ask(computer.observation, asked)
                except (ConfigError, InfraError):
                    raise
                except Exception as error:
                    raise PolicyFailed(f"{type(error).__name__}: {error}") from error
                await computer.answer(decision)
        finally:
            self.end = computer.observation if self.screens_kept else None
            told = computer.history()
            self.whole = told.task.instruction, told.past, computer.observation.image
            self.limited = limited(computer)
            if not self.counted:
                self.batcher.leave()


def limited(computer: Computer) -> bool:
    """Whether the limit of steps cut the episode, and not the model, the environment or a failure."""
    if len(computer.steps) < computer.max_steps or computer.observation.done or computer.failed:
        return False
    last = computer.steps[-1].actions if computer.steps else ()
    return not any(action.type in (ActionType.DONE, ActionType.FAIL) for action in last)


def generate(
    policy: Agent,
    make_desktop: Callable[[], Desktop],
    tasks: Sequence[Task],
    config: RlConfig,
    number: int,
    stop: Callable[[], bool] = lambda: False,
    further: Callable[[int], Sequence[Task]] = lambda _: (),
    effort: Callable[[Task], TaskEffort] | None = None,
    kept: KeptRollouts | None = None,
) -> RolloutGeneration:
    """The rollouts of generation `number`.

    policy   an agent that is asked with `PolicyQuestion` and keeps what it samples in `turns`
    further  for dynamic sampling: that many more tasks
    effort   rollouts of a task, and their turns; None: `group_size` rollouts each
    kept     what is finished already, and where each further one is kept; None: all are played

    Raises InfraError when more than the share `max_void` is void or no group is left, RolloutsStopped when `stop` says
    so, ConfigError and PolicyFailed.
    """
    made, clock = RolloutGeneration(number), WaitingClock()
    batch = DynamicBatch[RolloutGroup | None](len(tasks), max(len(tasks), config.most_groups or 0))
    while tasks:
        efforts = [TaskEffort(config.group_size) if effort is None else effort(task) for task in tasks]
        try:
            playing = _generate(policy, make_desktop, tasks, efforts, config, made, clock, stop, kept)
            results, retried = asyncio.run(playing)
        except BaseExceptionGroup as several:
            raise first_error(several) from None
        made.retried += retried
        made.times = clock.read()
        for group in _groups(made, tasks, results, efforts):
            batch.add(group, config.most_groups is None or (group is not None and group.signal))
        check_void(made, config)
        tasks = further(batch.missing()) if config.most_groups is not None and batch.missing() else ()
    used = [group for group in batch.kept if group is not None]
    left = [group for group in batch.dropped if group is not None]
    made.groups, made.unused = (used, left) if used else (left, [])
    if not made.groups:
        raise InfraError(f"generation {number}: no group has {LEAST} valid rollouts: {_reasons(made)}")
    return made


def _groups(
    made: RolloutGeneration,
    tasks: Sequence[Task],
    results: Sequence[PlayedRollout | str],
    efforts: Sequence[TaskEffort],
) -> list[RolloutGroup | None]:
    """The group of each further task, None where it is dropped; what was lost is noted in `made`."""
    found: list[RolloutGroup | None] = []
    left = iter(results)
    for index, task in enumerate(tasks):
        members = list(itertools.islice(left, efforts[index].rollouts))
        place = len(made.tasks) + index
        made.void.update(each for each in members if isinstance(each, str))
        made.lost += [(place, member, why) for member, why in enumerate(members) if isinstance(why, str)]
        valid = tuple(each for each in members if isinstance(each, PlayedRollout))
        if len(valid) < LEAST:
            made.dropped.append(task.task_id)
        found.append(None if len(valid) < LEAST else RolloutGroup(task, valid, place))
    made.tasks = (*made.tasks, *tasks)
    made.tried += len(results)
    return found


def _reasons(made: RolloutGeneration) -> str:
    return "; ".join(f"{count} x {reason}" for reason, count in made.void.most_common(5))


def check_void(made: RolloutGeneration, config: RlConfig) -> None:
    """Raises InfraError where more than the share `max_void` is void."""
    lost, whole = made.void.total(), made.tried
    if lost > config.max_void * whole:
        raise InfraError(
            f"generation {made.number}: {lost} of {whole} rollouts are void, more than max_void {config.max_void:g}: "
            f"{_reasons(made)}"
        )


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What ended the rollouts: of several errors at once, the first that is not their cancelling."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _generate(
    policy: Agent,
    make_desktop: Callable[[], Desktop],
    tasks: Sequence[Task],
    efforts: Sequence[TaskEffort],
    config: RlConfig,
    made: RolloutGeneration,
    clock: WaitingClock,
    stop: Callable[[], bool],
    kept: KeptRollouts | None,
) -> tuple[list[PlayedRollout | str], int]:
    """For each seat its rollout, or why it is void; and how many attempts were tried again. `made`: what was played
    before in this generation."""
    together = config.batching == "together"
    places = [(group, member) for group, each in enumerate(efforts) for member in range(each.rollouts)]
    seats_there = len(places)
    retried = 0
    free = asyncio.Semaphore(config.limits.concurrency)

    async def seat(batcher: Batcher, place: int) -> PlayedRollout | str:
        nonlocal retried
        group, member = places[place]
        task, turns, number = tasks[group], efforts[group].turns, len(made.tasks) + group
        if kept is not None and (before := await asyncio.to_thread(kept.find, number, member, task, turns)) is not None:
            made.reused += 1
            return before
        seed = f"{config.seed} {made.number} {number} {member}"
        try:
            async with free:
                found, again = await try_rollout(batcher, place, seed, make_desktop, task, config, member, turns, clock)
        finally:
            if together:
                batcher.leave()
        retried += again
        if kept is not None and isinstance(found, PlayedRollout):
            await asyncio.to_thread(kept.keep, number, task, turns, found)
        return found

    async with Batcher(policy, seats_there, None if together else LINGER) as batcher:
        if together:
            for _ in range(seats_there):
                batcher.enter()
        async with asyncio.TaskGroup() as running:
            watching = running.create_task(_watch(stop))
            seats = [running.create_task(seat(batcher, place)) for place in range(seats_there)]
            await asyncio.gather(*seats)
            watching.cancel()
    return [each.result() for each in seats], retried


async def _watch(stop: Callable[[], bool]) -> None:
    while not stop():
        await asyncio.sleep(POLL)
    raise RolloutsStopped


async def try_rollout(
    batcher: Batcher,
    place: int,
    seed: str,
    make_desktop: Callable[[], Desktop],
    task: Task,
    config: RlConfig,
    member: int,
    turns: int | None,
    clock: WaitingClock,
) -> tuple[PlayedRollout | str, int]:
    """A rollout, or why it is void after all its attempts; and how many attempts were followed by another. Raises
    ConfigError, PolicyFailed."""
    why = ""
    with clock.rollout():
        for attempt in range(config.limits.attempts):
            if attempt:
                await asyncio.sleep(config.limits.backoff * 2 ** (attempt - 1))
            runner = RolloutAttempt(
                batcher,
                place,
                f"{seed} {attempt}",
                counted=config.batching == "together",
                states_kept=config.advantage == "gigpo",
                screens_kept=config.keeps_screens,
                clock=clock,
            )
            try:
                return await play_rollout(runner, make_desktop, task, config, member, turns), attempt
            except (ConfigError, PolicyFailed):
                raise
            except Exception as error:  # also of an environment's own checker: never a score
                why = f"{type(error).__name__}: {error}"
    return why, config.limits.attempts - 1


async def play_rollout(
    runner: RolloutAttempt,
    make_desktop: Callable[[], Desktop],
    task: Task,
    config: RlConfig,
    member: int,
    turns: int | None = None,
) -> PlayedRollout:
    """One attempt. `turns`: at most so many; None: as the limits say. Raises whatever breaks it."""
    limits: RolloutLimits = config.limits
    if turns is not None:
        limits = msgspec.structs.replace(limits, max_steps=turns)
    episode = await play(runner, make_desktop, task, environment=config.environment, limits=limits)
    if episode.score is None:
        raise InfraError("nothing judged the rollout")
    if len(runner.turns) != len(episode.steps):
        raise PolicyFailed(f"{len(runner.turns)} answers were kept of an episode with {len(episode.steps)} steps")
    if config.reward_model is not None:
        assert runner.whole is not None
        outcome = await asyncio.to_thread(_judged, config.reward_model, runner.whole)
    else:
        outcome = episode.score if config.reward == "score" else float(bool(episode.success))
    parts: dict[str, float] = {config.reward: outcome}
    if config.turn_cost:
        parts["turn_cost"] = efficiency_penalty(len(runner.turns), config.turn_cost)
    if config.length_buffer is not None and runner.turns:
        lengths = [len(turn.ids) for turn in runner.turns]
        costs = [overlong_penalty(length, config.max_completion, config.length_buffer) for length in lengths]
        parts["length_cost"] = math.fsum(costs) / len(costs)
    if config.cut_cost:
        parts["cut_cost"] = -config.cut_cost * sum(turn.cut for turn in runner.turns)
    return PlayedRollout(
        member,
        episode,
        tuple(runner.turns),
        float(sum(parts.values())),
        states=tuple(runner.states),
        asked=tuple(runner.asked),
        end=runner.end,
        parts=parts,
        version=runner.turns[0].version if runner.turns else None,
        limited=runner.limited,
    )


def _judged(path: str, whole: ToldEpisode) -> float:
    try:
        return load_judge(path).probability(whole)
    except Exception as error:  # of the model, not of the desktop: another attempt would not help
        raise PolicyFailed(f"reward_model: {type(error).__name__}: {error}") from error


def efficiency_penalty(turns: int, cost: float = 0.02) -> float:
    """What is added to a return for the turns that it took: -cost * turns."""
    return -cost * turns


def overlong_penalty(tokens: int, longest: int, buffer: int) -> float:
    """What is added to a return for a long answer: 0 up to `longest - buffer` tokens, then falling in a line to -1 at
    `longest`; without a buffer -1 from the first token beyond. Source: DAPO (arXiv 2503.14476), its soft punishment."""
    if tokens <= longest - buffer:
        return 0.0
    return -1.0 if tokens >= longest else (longest - buffer - tokens) / buffer
