"""The desktops of a training, on which some tasks begin in the middle of a recorded episode."""

from __future__ import annotations

from collections.abc import Callable

from eval.desktop import Desktop
from eval.environments.registry import environment, tasks_of
from eval.environments.started import StartedDesktop
from training.rl.config import RlConfig
from training.rl.sections import started_steps


def desktop_maker(config: RlConfig) -> Callable[[], Desktop]:
    """Makes a desktop for one episode at a time. Raises ConfigError."""
    world = environment(config.environment)
    if not config.start:
        return lambda: world.desktop(config.options)
    tasks = tasks_of(config.environment, config.tasks.count, config.tasks.seed, config.options)
    starts = started_steps(config.start, tasks)
    return lambda: StartedDesktop(world.desktop(config.options), starts)
