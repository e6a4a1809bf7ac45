"""The rollout loop of evaluation and of RL: many episodes at once, each on a desktop of its own.

The rollout owns the episode: its steps, records, time limits and end (`eval.agents.computer`). An agent that runs a
loop of its own works on the guarded computer; one that only answers gets a loop around it. A step is one answer of the
model, with one action or several.

An episode ends when the agent says done or fail, when the environment says that it is over, after the last allowed
step, or at an answer that is not an action. Its score is the environment's judgement of the final state, and 0 after
an answer that is not an action. An InfraError, or a desktop or an agent that does not answer in time, makes the episode
`infra`: it is run again from the start, at most `attempts` times in all, and is never a score. A record is written when
its episode ends, so a run that was cut off continues with the tasks that have none.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from eval.agents.base import Agent
from eval.agents.batcher import Batcher, Stepping
from eval.agents.computer import Computer, EpisodeOver, LoopingAgent, timed
from eval.config import Config, ConfigError
from eval.desktop import AgentTimeout, BadFrame, BrokenByAgent, Desktop, InfraError, Observation, Score, Task
from eval.episodes import Episode, EpisodeWriter, Step, jsonl

RECORDS: Final = "tasks.jsonl"
EPISODES: Final = "episodes"
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class TaskRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of tasks.jsonl, one task: what paired comparisons and the summary need.

    by_type   expected action type -> [steps, correct steps], where the environment has an expert
    pointed   steps at which the expert would point at a box; in_box, those at which the agent's point lay in it
    attempts  how often the episode was started; more than 1 after infrastructure failures
    metrics   figures of this task alone, for paired comparisons
    version   of the rules that gave the score
    cluster   records of one cluster are not independent, as the steps of a trajectory; None: a cluster of its own
    rules     what else defines the score, by name: results are only compared where it is the same
    """

    benchmark: str
    agent: str
    task_id: str
    seed: int
    score: float | None
    success: bool | None
    outcome: Literal["scored", "infra"]
    error: str | None = None
    steps: int = 0
    parse_failures: int = 0
    judged: int = 0
    correct: int = 0
    pointed: int = 0
    in_box: int = 0
    by_type: dict[str, list[int]] = {}
    duration_ms: int = 0
    attempts: int = 1
    metrics: dict[str, float] = {}
    episode: str | None = None
    version: str = ""
    cluster: str | None = None
    rules: dict[str, Any] = {}


class RolloutLimits(Config, frozen=True):
    """The bounds of a rollout.

    max_steps       steps per episode, where the task sets no number of its own; a step is one answer of the model,
                    however many actions it holds
    concurrency     episodes that run at once, each on a desktop of its own
    reset_timeout   seconds that a reset may take; the same holds for score and close
    step_timeout    seconds that an action may take
    answer_timeout  seconds that an agent may take for an answer; after that the episode is `infra`
    attempts        how often an episode is started at most, when the infrastructure fails
    backoff         seconds before the second attempt; doubles with each further attempt
    parse_failures  the episode fails at this many answers that are not actions
    """

    max_steps: Count = 15
    concurrency: Count = 16
    reset_timeout: Seconds = 300.0
    step_timeout: Seconds = 60.0
    answer_timeout: Seconds = 1800.0
    attempts: Count = 3
    backoff: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    parse_failures: Count = 1


class Rollout(msgspec.Struct, frozen=True):
    """The result of a task. `episode` is None when `out` already held the record, or when every attempt was `infra`."""

    record: TaskRecord
    episode: Episode | None = None


def episode_id(task: Task) -> str:
    """A folder name for the task: readable, and the same in every run."""
    safe = "".join(char if char.isalnum() or char in "-_." else "-" for char in task.task_id).lstrip(".")
    return f"{safe}-{task.seed}"


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
    limits: RolloutLimits | None = None,
    keep_episodes: int | None = None,
    on_end: Callable[[Rollout], None] = lambda _: None,
) -> list[Rollout]:
    """Runs every task once; results in the order of `tasks`.

    out            tasks.jsonl (a line per task, in task order at the end) and episodes/<id>/; a task that is scored
                   there already is not run again, one that was `infra` is
    version        of the benchmark, and `options` of the environment: both are written into the records
    keep_episodes  only the first N tasks keep their folder with pictures; None keeps all
    on_end         called as each task ends, also for those found in `out`

    Raises ConfigError when `out` holds the results of another agent, benchmark or version, or results by other rules
    (environment, its options, steps, answers that may be no action), or when the agent or the environment raises one.
    """
    limits = limits or RolloutLimits()
    if len({episode_id(task) for task in tasks}) < len(tasks):
        raise ValueError("two tasks have the same id and seed")
    path = out / RECORDS
    records = jsonl.read(path, TaskRecord)
    if strangers := {(r.benchmark, r.agent) for r in records} - {(benchmark, agent.name)}:
        raise ConfigError(
            f"{path} holds results of {' and '.join(map('/'.join, sorted(strangers)))}; name another folder"
        )
    rules = scoring_rules(environment, options or {}, limits)
    if other := next((r for r in records if r.rules and (r.version, r.rules) != (version, rules)), None):
        raise ConfigError(f"{path} holds {_other_rules(other, version, rules)}; name another folder")
    known = {(r.task_id, r.seed): r for r in records if r.outcome == "scored"}
    jsonl.write(path, known.values())
    gate = asyncio.Semaphore(limits.concurrency)

    async def run_task(index: int, task: Task, looping: LoopingAgent) -> Rollout:
        if (record := known.get((task.task_id, task.seed))) is not None:
            done = Rollout(record)
        else:
            async with gate:
                keep = keep_episodes is None or index < keep_episodes
                folder = out / EPISODES / episode_id(task) if keep else None
                run = _Run(
                    looping, make_desktop, task, limits, folder, agent.name, benchmark, environment, version, rules
                )
                done = await run.attempts()
            jsonl.append(path, [done.record])
        on_end(done)
        return done

    try:
        async with _looping(agent, limits.concurrency) as looping, asyncio.TaskGroup() as group:
            running = [group.create_task(run_task(index, task, looping)) for index, task in enumerate(tasks)]
    except BaseExceptionGroup as group_error:
        if (error := _config_error(group_error)) is not None:
            raise error from None
        raise
    results = [task.result() for task in running]
    jsonl.write(path, [result.record for result in results])
    return results


@asynccontextmanager
async def _looping(agent: Agent | LoopingAgent, limit: int) -> AsyncIterator[LoopingAgent]:
    """The agent as one that loops: one that only acts gets a loop around it, and one batch for many episodes."""
    if isinstance(agent, LoopingAgent):
        yield agent
    else:
        async with Batcher(agent, limit) as batcher:
            yield Stepping(batcher)


def scoring_rules(environment: str, options: Mapping[str, Any], limits: RolloutLimits) -> dict[str, Any]:
    """What defines the score of a task besides the benchmark and its version."""
    return {
        "environment": environment,
        "options": dict(options),
        "max_steps": limits.max_steps,
        "parse_failures": limits.parse_failures,
    }


def _other_rules(record: TaskRecord, version: str, rules: Mapping[str, Any]) -> str:
    stored = {"version": record.version, **record.rules}
    differ = [
        f"{name} {stored.get(name)!r} where it is {value!r} now"
        for name, value in {"version": version, **rules}.items()
        if stored.get(name) != value
    ]
    return f"results by other rules: {', '.join(differ)}" if differ else "results by other rules"


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


class _Run:
    """One task: its attempts, and within one attempt its steps."""

    def __init__(
        self,
        looping: LoopingAgent,
        make_desktop: Callable[[], Desktop],
        task: Task,
        limits: RolloutLimits,
        folder: Path | None,
        agent: str,
        benchmark: str,
        environment: str,
        version: str,
        rules: dict[str, Any],
    ) -> None:
        self.looping = looping
        self.make_desktop = make_desktop
        self.task = task
        self.limits = limits
        self.folder = folder
        self.agent = agent
        self.benchmark = benchmark
        self.environment = environment
        self.version = version
        self.rules = rules
        self.screen = (0, 0)
        self.started = datetime.now(UTC)
        self.writer: EpisodeWriter | None = None
        self.steps: list[Step] = []

    async def attempts(self) -> Rollout:
        error = ""
        for attempt in range(1, self.limits.attempts + 1):
            if attempt > 1:
                await asyncio.sleep(self.limits.backoff * 2 ** (attempt - 2))
            started = time.monotonic()
            try:
                episode = await self._episode()
            except InfraError as failure:
                error = f"{type(failure).__name__}: {failure}"
                continue
            finally:
                took = round((time.monotonic() - started) * 1000)
            return Rollout(self._record(episode, took, attempt), episode)
        if self.writer is not None:  # keeps what the last attempt recorded, for people to look at
            self.writer.close(self._outcome(None, error, took))
        return Rollout(self._record(self._outcome(None, error, took), took, self.limits.attempts))

    async def _episode(self) -> Episode:
        self.started, clock = datetime.now(UTC), time.monotonic()
        self.writer = EpisodeWriter(self.folder) if self.folder else None
        self.steps = []
        desktop = self.make_desktop()
        try:
            observation = await timed(desktop.reset(self.task, self.task.seed), self.limits.reset_timeout, "reset")
            self.screen = observation.screen
            try:
                failed = await self._steps(desktop, observation)
                score = await timed(desktop.score(), self.limits.reset_timeout, "score")
            except BrokenByAgent as broken:
                failed, score = str(broken), Score(0.0, False)
        finally:
            await self._close(desktop)
        if failed:
            score = Score(0.0, False, {**score.detail, "agent_failure": failed})
        if self.steps:
            self.steps[-1] = msgspec.structs.replace(self.steps[-1], reward=score.value, done=True)
        episode = self._outcome(score, None, round((time.monotonic() - clock) * 1000))
        if self.writer is not None:
            self.writer.close(episode)
        return episode

    def _outcome(self, score: Score | None, error: str | None, took: int) -> Episode:
        """The finished episode: judged, or `infra` when there is no score."""
        return Episode(
            episode_id=episode_id(self.task),
            task_id=self.task.task_id,
            instruction=self.task.instruction,
            goal=self.task.instruction,
            seed=self.task.seed,
            screen=self.screen,
            success=None if score is None else score.success,
            score=None if score is None else score.value,
            outcome="infra" if score is None else "scored",
            error=error,
            steps=tuple(self.steps),
            agent=self.agent,
            environment=self.environment,
            started=self.started.isoformat(timespec="milliseconds"),
            duration_ms=took,
            tags=self.task.tags,
            metadata={} if score is None or not score.detail else {"score": dict(score.detail)},
        )

    async def _close(self, desktop: Desktop) -> None:
        """A desktop that cannot be closed does not change the score of its episode; the failure is printed."""
        try:
            await timed(desktop.close(), self.limits.reset_timeout, "close")
        except InfraError as error:
            print(f"{self.task.task_id}: closing the desktop: {error}", flush=True)

    async def _steps(self, desktop: Desktop, observation: Observation) -> str:
        """Lets the agent work, into `self.steps`. Gives why it failed by its answers, or "" when it did not."""
        computer = Computer(
            desktop,
            self.task,
            observation,
            max_steps=self.task.max_steps or self.limits.max_steps,
            step_timeout=self.limits.step_timeout,
            parse_failures=self.limits.parse_failures,
            save=self._save,
        )
        self.steps = computer.steps
        await self._work(computer)
        if computer.failure is not None:
            raise computer.failure
        self._save(len(self.steps), computer.observation)
        return computer.failed

    async def _work(self, computer: Computer) -> None:
        """Runs the agent's loop until it returns or the episode has ended, whichever is first."""
        loop = asyncio.create_task(self.looping.run(computer))
        ended = asyncio.create_task(computer.ended.wait())
        try:
            while not (loop.done() or ended.done()):
                left = computer.heard + self.limits.answer_timeout - time.monotonic()
                if left <= 0 and not computer.busy:
                    raise AgentTimeout(f"no answer of the agent for {self.limits.answer_timeout:g} s")
                await asyncio.wait({loop, ended}, timeout=max(left, 1.0), return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.cancel()
            ended.cancel()
            await asyncio.gather(loop, ended, return_exceptions=True)
        if computer.failure is not None or loop.cancelled():
            return
        if (error := loop.exception()) is not None and not isinstance(error, EpisodeOver):
            raise error

    def _save(self, index: int, observation: Observation) -> None:
        try:
            observation.image.load()
        except (OSError, SyntaxError) as error:  # what PIL raises for a broken picture
            raise BadFrame(str(error)) from None
        if self.writer is not None:
            self.writer.frame(index, observation.image)

    def _record(self, episode: Episode, took: int, attempt: int) -> TaskRecord:
        counts: Counter[str] = Counter()
        by_type: dict[str, list[int]] = {}
        for step in episode.steps:
            counts["failures"] += step.action is None
            counts.update({name: int(value) for name, value in step.metrics.items()})
            for name in step.metrics:
                if name.startswith("expect_"):
                    tally = by_type.setdefault(name.removeprefix("expect_"), [0, 0])
                    tally[0] += 1
                    tally[1] += int(step.metrics["correct"])
        judged, correct = sum(tally[0] for tally in by_type.values()), counts["correct"]
        pointed, in_box = sum("in_box" in step.metrics for step in episode.steps), counts["in_box"]
        metrics = {"steps": float(len(episode.steps)), "parse_failures": float(counts["failures"])}
        metrics |= _answers(episode.steps)
        if judged:
            metrics["step_accuracy"] = correct / judged
        if pointed:
            metrics["click_in_box"] = in_box / pointed
        return TaskRecord(
            benchmark=self.benchmark,
            agent=self.agent,
            task_id=self.task.task_id,
            seed=self.task.seed,
            score=episode.score,
            success=episode.success,
            outcome=episode.outcome,
            error=episode.error,
            steps=len(episode.steps),
            parse_failures=counts["failures"],
            judged=judged,
            correct=correct,
            pointed=pointed,
            in_box=in_box,
            by_type=dict(sorted(by_type.items())),
            duration_ms=took,
            attempts=attempt,
            metrics=metrics,
            episode=f"{EPISODES}/{episode.episode_id}" if self.folder else None,
            version=self.version,
            cluster=self.task.cluster,
            rules=self.rules,
        )


def _answers(steps: Sequence[Step]) -> dict[str, float]:
    """What the answers of an episode held besides one action each, where they did."""
    figures = {
        "actions": float(sum(len(step.actions) for step in steps)) if any(s.further_actions for s in steps) else 0.0,
        "refused": float(sum(step.refused is not None for step in steps)),
        "input_tokens": float(sum(step.usage.input_tokens for step in steps if step.usage)),
        "output_tokens": float(sum(step.usage.output_tokens for step in steps if step.usage)),
        "cost": sum(step.cost for step in steps if step.cost),
    }
    return {name: value for name, value in figures.items() if value}
