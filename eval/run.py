"""Evaluates an agent, and the baselines beside it, in a closed loop: `python -m eval.run --config $SLIPWAY_CONFIG`.

Writes results/ under $SLIPWAY_OUTPUTS: summary.json, tasks.jsonl, episodes/ (of `keep_episodes` tasks that failed and
as many that were solved, with their pictures), and baselines/<name>/tasks.jsonl. Started again, it continues with the
tasks that have no score yet.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from eval import config as configuration
from eval.agents.config import EvaluatedConfig, HackerConfig, ScriptedConfig, make_agent
from eval.config import Config, ConfigError
from eval.config import help as config_help
from eval.config.progress import metric, progress
from eval.config.strict import with_lines
from eval.desktop import Desktop, Interface, SetupFailed
from eval.environments.registry import (
    ENVIRONMENTS,
    EnvironmentName,
    environment,
    for_hacker,
    judge_of,
    tasks_of,
    with_solver,
    written_options,
)
from eval.grounders.base import GroundedDesktop
from eval.grounders.config import GrounderConfig, make_grounder
from eval.prompts import PromptBuilder, PromptConfig
from eval.prompts.demonstrations import Rule
from eval.records.earlier_results import repeated, take_over
from eval.records.task_record import Count
from eval.rollout.loop import Rollout, RolloutLimits, check_interface, rollout
from eval.rollout.rank_sharing import ranks_here
from eval.rollout.task_run import hacker_gains
from eval.scores import arms
from eval.scores.judge_errors import read_errors
from eval.scores.summary import MetricRow, summarise, table
from eval.scores.summary_file import write_summary

__all__ = ["ENVIRONMENTS", "EvaluatedTasks", "RunConfig", "environment", "evaluate", "main"]


class EvaluatedTasks(Config, frozen=True):
    """Which tasks.

    count  how many; none: every task of the set that `options` name, such as OSWorld's test_all.json (osworld)
    seed   of the first task; the others have the seeds after it
    """

    count: Count | None
    seed: Annotated[int, msgspec.Meta(ge=0)]

    def number(self, world: Any, options: Mapping[str, Any]) -> int:
        """How many they are. Raises ConfigError without a number where tasks are drawn without end."""
        if self.count is not None:
            return self.count
        if (size := getattr(world, "size", None)) is None:
            raise ConfigError("tasks.count: null is for environments with a set of tasks (osworld); allowed: a number")
        return int(size(options))


class RunConfig(Config, frozen=True):
    """
    benchmark      name of the evaluation in the results
    environment    where the tasks are done; `options` are its own
    tasks          how many tasks, and from which seed
    agent          who is evaluated
    version        version of the benchmark in the results
    split          split of the benchmark in the results; what is drawn is said by `options`
    options        options of the environment itself
    prompt         the same section as the training's
    interface      what agents may use: gui (mouse and keyboard), tools (open_file, run_command, read_tree), both;
                   environments whose desktops have tools: desktop; agents: openai-compatible, openai, claude
    grounder       who marks the screens for prompts with marks: the accessibility tree, or a model that looks at them;
                   none: the environment itself
    baselines      further agents, evaluated on the same tasks
    limits         steps, time limits and attempts of an episode
    trials         how often each task is run, for agents that draw: the results then have the mean over all, by task,
                   and pass_at/N, the chance that one of N trials solves a task
    earlier        the folder of results of another run, such as $SLIPWAY_INPUTS/earlier: its judged tasks are not run
                   again, where the rules allow it. A limit of steps may be higher here, and the task set newer
    keep_episodes  of the tasks in their order, so many that failed, and so many that were solved, keep their episode
                   folder with pictures; failures are what a person looks at first
    arms           evaluates the agent once with each of these rules in place of prompt.demonstration's, such as [none,
                   control, wrong, right], and says how they differ, paired by task (arms.json)
    within         numbers of answers, such as [15, 50]: the results also say which tasks were solved by an episode of
                   so many. Each is a lower bound: an agent that knows of a limit may need fewer. A published score is
                   of a run with its own limit
    """

    benchmark: str
    environment: EnvironmentName
    tasks: EvaluatedTasks
    agent: EvaluatedConfig
    version: str = "1"
    split: str = "test"
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    prompt: PromptConfig = PromptConfig()
    interface: Interface = "gui"
    grounder: GrounderConfig | None = None
    baselines: list[EvaluatedConfig] = msgspec.field(default_factory=list)
    limits: RolloutLimits = RolloutLimits()
    trials: Count = 1
    earlier: str | None = None
    keep_episodes: Annotated[int, msgspec.Meta(ge=0)] = 12
    arms: tuple[Rule, ...] = ()
    within: tuple[Count, ...] = ()


class _Reporter:
    """Reports the progress of an agent's rollout; `curve` also writes the success rate so far as a metric."""

    def __init__(self, agent: str, total: int, *, curve: bool) -> None:
        self.agent = agent
        self.total = total
        self.curve = curve
        self.done = 0
        self.solved = 0

    def __call__(self, result: Rollout) -> None:
        self.done += 1
        self.solved += bool(result.record.success)
        progress(self.done, self.total, f"evaluate {self.agent}", f"{self.solved} of {self.done} solved")
        if self.curve:
            metric(self.done, "success_so_far", self.solved / self.done)
        if self.done % 10 == 0 or self.done == self.total:
            print(f"{self.agent}: {self.done} of {self.total} tasks, {self.solved} solved", flush=True)


def evaluate(config: RunConfig, out: Path) -> list[MetricRow]:
    """Runs everything; gives the rows of summary.json, the agent's first, then the baselines'. In a job whose leading
    role has several processes they share the tasks, and all but rank 0 give [].

    Raises ConfigError, also for a task without the demonstration that it needs, and SetupFailed when not one task could
    be run.
    """
    players = _players(config)
    names = [chosen.name for chosen, _ in players]
    if len(set(names)) < len(names):
        raise ConfigError(f"agents need different names, not {', '.join(names)}")
    world = environment(config.environment)
    if list(config.within) != sorted(set(config.within)):
        raise ConfigError(f"within: numbers that rise, not {', '.join(map(str, config.within))}")
    count = config.tasks.number(world, config.options)
    tasks = repeated(tasks_of(config.environment, count, config.tasks.seed, config.options), config.trials)
    ranks = ranks_here()
    if config.earlier is not None and (ranks is None or ranks.leads):
        take_over(Path(config.earlier), out)
    most = max(config.limits.steps_of(task) for task in tasks)
    if config.within and config.within[-1] > most:
        raise ConfigError(f"within: {config.within[-1]}; no episode has more than {most} answers")
    for _, builder in players:
        builder.check(tasks)
    grounder = None if config.grounder is None else make_grounder(config.grounder)

    def make_desktop(agent: EvaluatedConfig) -> Desktop:
        if isinstance(agent, ScriptedConfig) and agent.solver is not None:
            desktop = with_solver(config.environment, config.options, agent.solver)
        else:
            make = for_hacker(config.environment) if isinstance(agent, HackerConfig) else world.desktop
            desktop = make(config.options)
        return desktop if grounder is None else GroundedDesktop(desktop, grounder)

    written = written_options(config.environment, config.options)
    errors = read_errors(judge_of(config.environment, config.options))
    rows: list[MetricRow] = []
    if ranks is not None:
        ranks.last = len(players) - 1
    units: dict[str, dict[str, arms.Unit]] = {}
    for number, (chosen, builder) in enumerate(players):
        agent = make_agent(chosen, builder)
        check_interface(agent, config.interface)
        results = asyncio.run(
            rollout(
                agent,
                partial(make_desktop, chosen),
                tasks,
                out=out if number == 0 else out / "baselines" / agent.name,
                benchmark=config.benchmark,
                environment=config.environment,
                version=config.version,
                options=written,
                interface=config.interface,
                limits=config.limits,
                keep_episodes=config.keep_episodes if number == 0 else 0,
                on_end=_Reporter(agent.name, len(tasks), curve=number == 0),
                ranks=ranks,
                lenient=config.prompt.lenient,
            )
        )
        if isinstance(chosen, HackerConfig):
            for line in hacker_gains(results):
                print(line, flush=True)
        if ranks is not None and not ranks.leads:
            continue
        records = [result.record for result in results]
        told = {"version": _edition(config.version, written), "split": config.split}
        if number < len(config.arms):
            units[config.arms[number]] = arms.of_tasks(records)
        rows += summarise(records, **told, seed=config.tasks.seed, within=config.within, errors=errors)
        if all(record.outcome != "scored" for record in records):
            raise SetupFailed(f"no task could be run: {records[0].error}")
    if not rows:
        return []  # rank 0 has them
    write_summary(out / "summary.json", rows)
    if units:
        compared = arms.compare(units)
        arms.write(out / arms.ARMS, compared)
        print(arms.table(compared), flush=True)
    for row in rows:
        if row.agent == names[0] and row.value is not None:
            metric(len(tasks), row.metric, row.value)
    return rows


def _players(config: RunConfig) -> list[tuple[EvaluatedConfig, PromptBuilder]]:
    """Who is evaluated, and with which prompts: the agent or its arms, then the baselines. Raises ConfigError."""
    builder = config.prompt.builder()
    baselines = [(baseline, builder) for baseline in config.baselines]
    if not config.arms:
        return [(config.agent, builder), *baselines]
    prompts = zip(config.arms, config.prompt.arms(config.arms), strict=True)
    named = msgspec.structs.replace
    return [
        *((named(config.agent, name=f"{config.agent.name}-{rule}"), prompt.builder()) for rule, prompt in prompts),
        *baselines,
    ]


def _edition(version: str, options: Mapping[str, Any]) -> str:
    """The version as tables show it: with the revision of the task set, so that no two sets stand in one table."""
    return f"{version} ({options['revision']})" if "revision" in options else version


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("eval.run", "Evaluate an agent in a closed loop.", RunConfig)
    parser.add_argument("--out", help="where results go; default $SLIPWAY_OUTPUTS/results")
    arguments = parser.parse_args(argv)

    def run() -> int:
        path = Path(arguments.config)
        with with_lines(path), configuration.results_folder(arguments.out, "results") as out:
            config = configuration.load(path, RunConfig)
            if rows := evaluate(config, out):
                print(table(rows))
        return 0

    return configuration.run(run, failures=(SetupFailed,))


if __name__ == "__main__":
    sys.exit(main())
