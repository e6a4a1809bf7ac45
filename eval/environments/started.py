"""A desktop whose tasks begin in the middle of a recorded episode: its first steps are done again after each reset."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.actions import ActionType
from eval.config import ConfigError
from eval.desktop import ActionRefused, Desktop, Observation, SetupFailed, Task, WrappedDesktop
from eval.episodes import Episode, EpisodeError, Step, read_episode
from eval.identity import digest_of

Key = tuple[str, int]


def first_steps(folder: str, count: int, tasks: Mapping[Key, Task], where: str) -> tuple[Key, Sequence[Step]]:
    """(the task of a recorded episode, its first `count` steps). Raises ConfigError where nothing can begin there."""
    try:
        episode: Episode = read_episode(Path(folder))
    except EpisodeError as error:
        raise ConfigError(f"{where}.episode: {error}") from None
    task = tasks.get(key := (episode.task_id, episode.seed))
    if task is None:
        raise ConfigError(f"{where}.episode: {folder} is of {key[0]} with seed {key[1]}, which is none of the tasks")
    recorded = episode.metadata.get("identity")
    if recorded is not None and task.identity and recorded != digest_of(dict(task.identity)):
        raise ConfigError(f"{where}.episode: {folder} is of another state of that task, its judge or its desktop")
    if not 0 < count < len(episode.steps):
        raise ConfigError(
            f"{where}.step: {count}; the episode has {len(episode.steps)} steps, allowed: fewer than that"
        )
    steps = episode.steps[:count]
    if any(action.type in (ActionType.DONE, ActionType.FAIL) for step in steps for action in step.actions):
        raise ConfigError(f"{where}.step: {count}; the agent had said before that it was at its end")
    return key, steps


class StartedDesktop(WrappedDesktop):
    """See the module. `starts`: of some tasks the steps that are done first; all others begin as ever."""

    def __init__(self, inner: Desktop, starts: Mapping[Key, Sequence[Step]]) -> None:
        super().__init__(inner)
        self.starts = starts

    async def reset(self, task: Task, seed: int) -> Observation:
        """Raises SetupFailed where the episode cannot be gone through again."""
        seen = await super().reset(task, seed)
        for step in self.starts.get((task.task_id, task.seed), ()):
            with contextlib.suppress(ActionRefused):  # as it was refused then
                seen = await self._again(step, seen)
            if seen.done:
                raise SetupFailed(f"the episode ends at step {step.index} already, and did not when it was recorded")
        return seen

    async def _again(self, step: Step, seen: Observation) -> Observation:
        for call in step.calls:
            if call.name in self.tools:
                _, seen = await self.call(call.name, call.arguments)
        for action in step.actions:
            seen = await self.step(action)
        return seen
