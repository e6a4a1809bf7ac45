"""Training episodes by an environment's scripted expert: `python -m training.make_episodes --config $SLIPWAY_CONFIG`.

Writes episodes/ (and tasks.jsonl) under $SLIPWAY_OUTPUTS, through the loop that evaluation uses. A restart makes only
the episodes that are missing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from eval import config as configuration
from eval.agents.config import AgentConfig, ScriptedConfig, make_agent
from eval.config import Config
from eval.config import help as config_help
from eval.config.progress import progress
from eval.environments.registry import EnvironmentName, TasksConfig, environment, tasks_of
from eval.prompts import PromptConfig
from eval.rollout.loop import Rollout, RolloutLimits, rollout


class MakeEpisodesConfig(Config, frozen=True):
    """
    environment  whose expert acts
    tasks        how many tasks, and the seeds they are drawn with
    options      the environment's own options
    prompt       the dialect that the answers are written in: give the training's section
    limits       bounds of the rollout: steps, time, attempts
    agent        who acts: the environment's own expert unless you name another
    """

    environment: EnvironmentName
    tasks: TasksConfig
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    prompt: PromptConfig = PromptConfig()
    agent: AgentConfig = ScriptedConfig()
    limits: RolloutLimits = RolloutLimits()


def make(config: MakeEpisodesConfig, out: Path) -> int:
    """Writes an episode per task; returns the number of tasks that the agent solved. Raises ConfigError."""
    world = environment(config.environment)
    tasks = tasks_of(config.environment, config.tasks.count, config.tasks.seed, config.options)
    done = 0

    def tell(_: Rollout) -> None:
        nonlocal done
        done += 1
        if done % 20 == 0 or done == len(tasks):
            progress(done, len(tasks), "make episodes")

    results = asyncio.run(
        rollout(
            make_agent(config.agent, config.prompt.builder()),
            lambda: world.desktop(config.options),
            tasks,
            out=out,
            benchmark=config.environment,
            environment=config.environment,
            limits=config.limits,
            on_end=tell,
        )
    )
    return sum(bool(result.record.success) for result in results)


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("training.make_episodes", "Make training episodes.", MakeEpisodesConfig)
    parser.add_argument("--out", help="where episodes/ goes; default $SLIPWAY_OUTPUTS")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), MakeEpisodesConfig)
        out = configuration.output_folder(arguments.out)
        solved = make(config, out)
        print(f"{config.tasks.count} episodes, {solved} solved")
        return 0 if solved == config.tasks.count else 1

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
