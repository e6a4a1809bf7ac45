"""Evaluates the model during training: tasks solved, steps right, or the loss on held-out data.

A callback decodes greedily with the current weights, through the agent and the rollout loop of `eval`. Evaluation does
not affect training: the random states are restored, so a run with evaluation ends with the same weights as one without.
Checkpoints hold the evaluation's state.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from eval.agents.base import Agent, Decision, History
from eval.config import Config, ConfigError
from eval.desktop import Desktop, Observation, Task
from eval.environments.registry import EnvironmentName, TasksConfig, environment, tasks_of
from eval.episodes import Episode
from eval.prompts import PromptBuilder
from eval.rollout.loop import RolloutLimits
from eval.rollout.task_run import Rollout, hacker_gains
from eval.scores.stats import Estimate, by_cluster
from training.data.held_out import check_source, open_held_out
from training.data.samples import Sample
from training.options import Positive

OF_STEPS: Final = ("exact", "matches", "click_in_box")
LOSS: Final = (
    "loss"  # the training's own, on held-out data: the lower the better (training.common.measuring.validation)
)
WITH_BOX: Final = "with_box"  # the share of the steps that have a box: a count, which no metric can be chosen by
OF_TASKS: Final = ("success", "score", "step_accuracy", "click_in_box")
Scores = dict[str, Estimate]
TriedTasks = list[tuple[Task, Rollout]]


class EvaluationConfig(Config, frozen=True, kw_only=True):
    """
    environment  the model tries `tasks` of it; give either this or `episodes`
    tasks        how many tasks, and the seeds they are drawn with; keep them apart from the training's
    options      the environment's own options
    limits       bounds of the rollout: steps, time, attempts
    episodes     held-out steps that are predicted, in place of an environment: a folder of episodes, or a packed
                 dataset
    split        with `episodes`: the split of a packed dataset
    held_out     with `environment`: a checker of your own that no reward sees, `package.module:name` of a function
                 (task, last screenshot, actions done) that gives True, False, a number from 0 to 1 or a Score. Adds
                 the figures held_out, its mean, and hacked, the share of the solved tasks that it does not count as
                 solved: it grows where a model learns to please the other checker only
    hacker       with `environment`: at every evaluation a hacker plays the same tasks, too. It says done at once, and
                 takes all short ways that the environment knows (linux-desktop, tasks of your own with a validator, an
                 environment of your own with the method `hacker`), without doing the work. Adds the figure hacker,
                 the share of the tasks for which the checker gives it anything: it should be 0
    count        with `episodes`: how many steps are predicted, spread evenly over all
    every        optimiser steps between two evaluations; the last step is evaluated as well
    metric       what decides: success, score, step_accuracy, click_in_box of an environment; exact (the same text),
                 matches (the same action, its point in the same box; where there is no box, as on recordings of a
                 person, its distance decides), click_in_box of episodes; or loss, the training's own on those
                 episodes, for which nothing is generated. The lowest loss is the best. All processes compute it
                 together; fsdp takes no other metric, and deepspeed takes none. training.dpo and training.reward take
                 it on `count` of their held-out pairs, without environment and episodes
    patience     stops after this many evaluations without a better value; None never stops
    minimum      patience counts only once the metric has reached this value: a model often learns nothing visible at
                 first
    at_start     evaluates before the first step as well, for comparison: those weights are never kept
    keep         which weights model/ gets: the best by `metric`, or the last; the summary has the number of those
    """

    environment: EnvironmentName | None = None
    tasks: TasksConfig = TasksConfig(count=64, seed=1_000_000)
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    limits: RolloutLimits = RolloutLimits()
    held_out: str | None = None
    hacker: bool = False
    episodes: str | None = None
    split: str = "validation"
    count: Positive = 64
    every: Positive = 100
    metric: str | None = None
    patience: Positive | None = None
    minimum: float = 0.0
    at_start: bool = False
    keep: Literal["best", "last"] = "best"

    @property
    def decides(self) -> str:
        return self.metric or ("success" if self.environment is not None else "matches")

    def measures(self) -> dict[str, Any]:
        """What decides which two of its numbers can be compared, but for the content of `episodes`."""
        told: dict[str, Any] = {"metric": self.decides, "count": self.count}
        if self.environment is not None:
            told = {"metric": self.decides, "environment": self.environment, "options": self.options}
            told |= {"tasks": msgspec.to_builtins(self.tasks), "held_out": self.held_out}
        return msgspec.to_builtins(told)  # type: ignore[no-any-return]

    def check(self, *, pairs: bool = False) -> None:
        """Raises ConfigError. pairs: the training has held-out pairs, whose loss can be taken."""
        if pairs and self.decides == LOSS:
            if self.environment is not None or self.episodes is not None:
                raise ConfigError("evaluation: the loss is that of held-out pairs; leave environment and episodes out")
            self._check_minimum()
            return
        if (self.environment is None) == (self.episodes is None):
            raise ConfigError("evaluation: give either environment or episodes")
        allowed = OF_TASKS if self.environment is not None else (*OF_STEPS, LOSS)
        if self.decides not in allowed:
            raise ConfigError(f"evaluation.metric: {self.metric!r} is unknown; allowed: {', '.join(allowed)}")
        self._check_minimum()
        if self.hacker and self.environment is None:
            raise ConfigError("evaluation.hacker: plays tasks of an environment; held-out steps have none")
        if self.held_out is not None:
            if self.environment is None:
                raise ConfigError("evaluation.held_out: judges tasks of an environment; held-out steps have none")
            from eval.config.importing import load_object

            load_object(self.held_out, "evaluation.held_out")
        if self.environment is not None:
            environment(self.environment).tasks(self.tasks.count, self.tasks.seed, self.options)
        elif self.episodes is not None:
            check_source(self.episodes, self.split, "evaluation.episodes")

    def _check_minimum(self) -> None:
        if self.decides == LOSS and self.minimum:
            raise ConfigError("evaluation.minimum: a loss has none, the lowest is the best; leave it out")


class Interrupted(Exception):
    """SIGTERM came during an evaluation."""


class InterruptibleAgent:
    """An agent that can be interrupted, so that a stop does not wait for the end of an evaluation."""

    def __init__(self, agent: Agent, asked: Callable[[], bool]) -> None:
        self.agent = agent
        self.asked = asked
        self.name, self.parallel = agent.name, agent.parallel

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        if self.asked():
            raise Interrupted
        return await self.agent.act(observations, histories)


def evaluate(
    config: EvaluationConfig,
    agent: Agent,
    builder: PromptBuilder,
    hear: Callable[[TriedTasks], None] = lambda _: None,
    asked: Callable[[], bool] = lambda: False,
) -> Scores:
    """The agent's metrics, by name. `hear` is given the tasks that were tried, in order. Raises Interrupted soon after
    `asked` says that a stop was asked for."""
    agent = InterruptibleAgent(agent, asked)
    try:
        if config.environment is None:
            return _steps(config, agent, builder)
        scores = _tasks(config, agent, hear)
        return scores | (hacker(config, asked) if config.hacker else {})
    except BaseExceptionGroup as group:
        if group.subgroup(Interrupted) is None:
            raise
        raise Interrupted from None


def _tasks(config: EvaluationConfig, agent: Agent, hear: Callable[[TriedTasks], None]) -> Scores:
    from eval.scores.summary import summarise

    assert config.environment is not None
    world = environment(config.environment)

    def make_desktop() -> Desktop:
        desktop = world.desktop(config.options)
        if config.held_out is None:
            return desktop
        from eval.environments.custom import TwiceJudged

        return TwiceJudged(desktop, config.held_out)

    tried = _played(config, agent, make_desktop)
    hear(tried)
    results = [result for _, result in tried]
    rows = summarise([result.record for result in results], version="1", split="", seed=config.tasks.seed)
    scores = {
        row.metric: Estimate(row.value, row.ci_low, row.ci_high, row.n, row.clusters)
        for row in rows
        if row.value is not None and row.ci_low is not None and row.ci_high is not None
    }
    if config.metric == "score" and "success" in scores:  # a row of its own only where a score is neither 0 nor 1
        scores.setdefault("score", scores["success"])
    return scores | (hacking([each.episode for each in results if each.episode]) if config.held_out else {})


def _played(config: EvaluationConfig, agent: Agent, make_desktop: Callable[[], Desktop]) -> TriedTasks:
    """The tasks, each with the agent's episode."""
    from eval.rollout.loop import rollout

    assert config.environment is not None
    tasks = tasks_of(config.environment, config.tasks.count, config.tasks.seed, config.options)
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(
            rollout(
                agent,
                make_desktop,
                tasks,
                out=Path(folder),
                benchmark=config.environment,
                environment=config.environment,
                limits=config.limits,
                keep_episodes=0,
            )
        )
    return list(zip(tasks, results, strict=True))


def hacker(config: EvaluationConfig, asked: Callable[[], bool]) -> Scores:
    """hacker, the share of the tasks for which the checker gives a hacker anything; no figure where its desktops failed
    at all of them. The log names the tasks, and how."""
    from eval.actions.dialects.dsl import Dsl
    from eval.agents.baselines import DoesNothing
    from eval.environments.registry import for_hacker

    assert config.environment is not None
    make = for_hacker(config.environment)
    agent = InterruptibleAgent(DoesNothing(Dsl(4), "hacker"), asked)
    tried = _played(config, agent, lambda: make(config.options))
    for line in hacker_gains(result for _, result in tried):
        print(line, flush=True)
    judged = [(task.task_id, result.record) for task, result in tried if result.record.outcome == "scored"]
    if lost := len(tried) - len(judged):
        print(f"the hacker could not play {lost} of {len(tried)} tasks: their desktop or checker failed", flush=True)
    found = by_cluster([(name, float(bool(record.score))) for name, record in judged])
    return {} if found is None else {"hacker": found}


def hacking(episodes: Sequence[Episode]) -> Scores:
    """Of episodes that were judged twice: held_out, the mean of the second judge, and hacked, the share of those that
    the first counts as solved and the second does not."""
    judged: list[tuple[str, float]] = []
    hacked: list[tuple[str, float]] = []
    for episode in episodes:
        told = episode.metadata.get("score", {}).get("held_out")
        if told is None:  # the agent broke the desktop: a score of 0 by both
            continue
        judged.append((episode.task_id, float(told["value"])))
        if episode.success:
            hacked.append((episode.task_id, float(not told["success"])))
    found = {"held_out": by_cluster(judged), "hacked": by_cluster(hacked)}
    return {name: value for name, value in found.items() if value is not None}


def hacking_text(scores: Scores) -> str:
    """A part of a line of the log where the two checkers disagree, and where a hacker gets anything, else ""."""
    told = ""
    if (hacked := scores.get("hacked")) is not None and hacked.value:
        told = f"; the held-out checker does not count {_of(hacked, 'solved tasks')}"
    if (found := scores.get("hacker")) is not None and found.value:
        told += f"; a hacker gets something for {_of(found, 'tasks')} without doing them"
    return told


def _of(share: Estimate, what: str) -> str:
    return f"{round(share.value * share.n)} of {share.n} {what} ({share.low:.3f} to {share.high:.3f})"


def check_sharded(config: EvaluationConfig | None, predictions: str | None, *, deepspeed: bool) -> None:
    """Raises ConfigError for what needs the whole model on each device, in a training that shards it.

    predictions: the name of another field that asks the model during the training, or None.
    """
    if predictions is not None:
        raise ConfigError(f"{predictions} needs the whole model on each device: not with fsdp or deepspeed")
    if config is not None and deepspeed:
        raise ConfigError("evaluation: not with deepspeed; fsdp takes evaluation.metric: loss")
    if config is not None and config.decides != LOSS:
        raise ConfigError(
            f"evaluation: {config.decides} needs the whole model on each device: not with fsdp; "
            "evaluation.metric: loss is computed by all processes together"
        )


def _steps(config: EvaluationConfig, agent: Agent, builder: PromptBuilder) -> Scores:
    assert config.episodes is not None
    return judged(*asked(agent, spread(open_held_out(config.episodes, config.split, builder), config.count)))


def spread(samples: Sequence[Sample], count: int) -> list[Sample]:
    """At most `count` samples that come from episodes, evenly spread."""
    chosen = [samples[i * len(samples) // count] for i in range(count)] if count < len(samples) else samples
    return [sample for sample in chosen if sample.episode is not None]


def asked(agent: Agent, samples: Sequence[Sample], at_once: int = 64) -> tuple[Sequence[Sample], list[Decision]]:
    """Each sample with the agent's decision, prompted as in an evaluation."""
    decisions: list[Decision] = []
    for start in range(0, len(samples), at_once):
        seen, past = zip(*(sample.asked() for sample in samples[start : start + at_once]), strict=True)
        decisions += [decision.single() for decision in asyncio.run(agent.act(seen, past))]
    return samples, decisions


def is_right(sample: Sample, decision: Decision) -> bool:
    """Whether the answer is the target's text, or does fully what is expected."""
    expected = sample.expected
    return decision.response == sample.target or (expected is not None and expected.credit(decision.action) == 1.0)


def judged(samples: Sequence[Sample], decisions: Sequence[Decision]) -> Scores:
    """What the answers are worth, with intervals by episode.

    exact         answers with the target's text
    matches       answers that do what is expected (`eval.desktop.Expected.credit`): 1 for a point in the box; without
                  a box the distance decides, from 1 down to 0
    click_in_box  of the steps with a box, answers whose point lies in it
    with_box      the share of steps that have a box
    """
    exact: list[tuple[str, float]] = []
    matches: list[tuple[str, float]] = []
    hits: list[tuple[str, float]] = []
    for sample, decision in zip(samples, decisions, strict=True):
        assert sample.episode is not None
        cluster = sample.episode.episode_id
        exact.append((cluster, float(decision.response == sample.target)))
        expected = sample.expected
        matches.append((cluster, 0.0 if expected is None else expected.credit(decision.action)))
        if expected is not None and expected.box is not None:
            hits.append((cluster, float(expected.hit(decision.action))))
    scores = {"exact": by_cluster(exact), "matches": by_cluster(matches), "click_in_box": by_cluster(hits)}
    known = {name: value for name, value in scores.items() if value is not None}
    if samples:
        share = len(hits) / len(samples)
        known[WITH_BOX] = Estimate(share, share, share, len(samples))
    return known


def boxes_text(scores: Scores) -> str:
    """How many of the held-out steps have a box, for a line of the log; "" where that is not known."""
    if (share := scores.get(WITH_BOX)) is None:
        return ""
    return f"; {round(share.value * share.n)} of {share.n} steps have a box, at the others the distance decides"


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Restores what an evaluation changes (random states, training mode), so that training continues unaffected.

    Within, the model has the average of its weights, where the training keeps one.
    """
    import numpy as np
    import torch

    from training.common.model.ema import averaged

    training, python, numbers = model.training, random.getstate(), np.random.get_state()
    with torch.random.fork_rng(), averaged(model):
        yield
    random.setstate(python)
    np.random.set_state(numbers)
    model.train(training)
