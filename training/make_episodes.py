"""Training episodes by an environment's scripted expert: `python -m training.make_episodes --config $SLIPWAY_CONFIG`.

Writes episodes/ (and tasks.jsonl) under $SLIPWAY_OUTPUTS, through the loop that evaluation uses. A restart makes only
the episodes that are missing.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from eval import config as configuration
from eval.agents.config import AgentConfig, ScriptedConfig, make_agent
from eval.config import Config, ConfigError
from eval.config import help as config_help
from eval.config.progress import progress
from eval.desktop import SetupFailed
from eval.environments.registry import EnvironmentName, TasksConfig, environment, tasks_of
from eval.episodes import is_complete
from eval.prompts import PromptConfig
from eval.records.task_record import EPISODES
from eval.rollout.loop import Rollout, RolloutLimits, rollout

JUDGED: Final = "judged.jsonl"


class JudgeConfig(Config, frozen=True):
    """
    model  a folder that training.reward wrote with `episodes`
    least  the probability of success from which an episode is kept; the others' folders are deleted, and judged.jsonl
           tells of both
    """

    model: str
    least: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5


class MakeEpisodesConfig(Config, frozen=True):
    """
    environment  whose expert acts
    tasks        how many tasks, and the seeds they are drawn with
    options      the environment's own options
    prompt       the dialect that the answers are written in: give the training's section
    limits       bounds of the rollout: steps, time, attempts
    judge        which episodes are kept, by a reward model of whole episodes; None: all
    agent        who acts: the environment's own expert unless you name another
    """

    environment: EnvironmentName
    tasks: TasksConfig
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    prompt: PromptConfig = PromptConfig()
    agent: AgentConfig = ScriptedConfig()
    limits: RolloutLimits = RolloutLimits()
    judge: JudgeConfig | None = None


def make(config: MakeEpisodesConfig, out: Path) -> int:
    """Writes an episode per task; returns the number of tasks that the agent solved. Raises ConfigError."""
    judge = None
    if config.judge is not None:
        from training.reward.episodes import load_judge  # takes torch

        judge = load_judge(config.judge.model)
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
    if config.judge is not None and judge is not None:
        keep_judged(out, judge.of_folder, config.judge.least)
    return sum(bool(result.record.success) for result in results)


def keep_judged(out: Path, judge: Callable[[Path], float], least: float) -> None:
    """Deletes the episodes of a lower probability, after judged.jsonl is written: a line per episode, also of those
    that an interrupted run deleted. Raises ConfigError where none would be left."""
    path = out / JUDGED
    known = (
        {str(line["episode"]): line for line in map(json.loads, path.read_text().splitlines())} if path.exists() else {}
    )
    folders = [folder for folder in sorted((out / EPISODES).iterdir()) if is_complete(folder)]
    for number, folder in enumerate(folders, 1):
        found = judge(folder)
        known[folder.name] = {"episode": folder.name, "probability": found, "kept": found >= least}
        progress(number, len(folders), "judge episodes")
    begun = out / f".{JUDGED}"
    begun.write_text("".join(json.dumps(known[name]) + "\n" for name in sorted(known)))
    begun.replace(path)
    if not any(line["kept"] for line in known.values()):
        raise ConfigError(f"judge.least: none of {len(known)} episodes has a probability of {least:g}")
    gone = [folder for folder in folders if not known[folder.name]["kept"]]
    for folder in gone:
        shutil.rmtree(folder)
    print(
        f"{len(folders) - len(gone)} of {len(folders)} episodes kept: a probability of {least:g} at least", flush=True
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("training.make_episodes", "Make training episodes.", MakeEpisodesConfig)
    parser.add_argument("--out", help="where episodes/ goes; default $SLIPWAY_OUTPUTS")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), MakeEpisodesConfig)
        out = configuration.output_folder(arguments.out)
        solved = make(config, out)
        print(f"{config.tasks.count} episodes, {solved} solved")
        return 0 if solved == config.tasks.count or config.judge is not None else 1

    return configuration.run(run, failures=(SetupFailed,))


if __name__ == "__main__":
    sys.exit(main())
