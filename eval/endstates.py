"""Shows what a judge says of end states that are right in another way, nearly right, or spoiled:
`python -m eval.endstates --config FILE`, with the file of eval.run.

A task of one's own in `sources` that says a right end (`solved`) is judged on files in a folder; its programs are not
started. In any other environment the expert solves the task, and its actions are changed: each text letter by letter,
stopped before the end, another text, given up. The exit code is 1 where a judge answers otherwise than it should.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from eval import config as configuration
from eval.actions import Action, ActionType
from eval.config import ConfigError
from eval.config import help as config_help
from eval.desktop import ActionRefused, CheckerFailed, Desktop, InfraError, Score, Task
from eval.desktops.judging.end_states import EndKind, FolderStage, file_states
from eval.environments.custom import CustomTask, ValidatedScene
from eval.environments.registry import environment, tasks_of
from eval.run import RunConfig

MOST: Final = 100  # actions of an expert whose task has no limit
ENDS: Final = (ActionType.DONE, ActionType.FAIL)


@dataclass(frozen=True)
class JudgedState:
    """What a judge said of a state, with the reason."""

    task: str
    name: str
    kind: EndKind
    score: Score

    @property
    def right(self) -> bool:
        return self.score.success == (self.kind == "right") and (self.kind != "spoiled" or not self.score.value)


async def of_files(task: CustomTask, name: str) -> list[JudgedState]:
    """What a validator says of the states of a task of one's own. Raises InfraError."""
    assert task.solved is not None
    found = []
    for state in file_states(task.files, task.solved):
        with tempfile.TemporaryDirectory(prefix="slipway-endstates-") as home:
            stage, scene = FolderStage(Path(home)), ValidatedScene(task)
            await scene.prepare(stage)
            state.make(stage.home)
            found.append(JudgedState(name, state.name, state.kind, await _judged(scene.judge(stage, [_DONE]))))
    return found


async def of_actions(world: str, task: Task, options: Mapping[str, Any]) -> list[JudgedState]:
    """What the judge of an environment says of what the expert leaves, and of what others do. Raises ConfigError where
    there is no expert, and InfraError."""
    desktop = environment(world).desktop(options)
    try:
        way = await _way(desktop, task)
        found = []
        for name, kind, actions in action_states(way):
            if await _played(desktop, task, actions):
                found.append(JudgedState(task.task_id, name, kind, await _judged(desktop.score())))
        return found
    finally:
        await desktop.close()


def action_states(way: Sequence[Action]) -> Iterator[tuple[str, EndKind, list[Action]]]:
    """(name, kind, all actions) of each state; `way`: what the expert does, without its last DONE."""
    yield "the expert's way", "right", [*way, _DONE]
    if any(len(action.text or "") > 1 for action in way if action.type is ActionType.TYPE):
        yield "each text letter by letter", "right", [*(one for action in way for one in _letters(action)), _DONE]
    for count in range(len(way)):
        done = f"after {count} of {len(way)} actions" if count else "nothing done"
        yield done, "wrong", [*way[:count], _DONE]
    for at, action in enumerate(way):
        text = action.text or ""
        if action.type is not ActionType.TYPE or not text.strip():
            continue
        near = {f"{text!r} without a letter": text[:-1], f"{text!r} twice": text * 2}
        near |= {f"{text!r} in capitals": text.upper()} if text.upper() != text else {}
        for name, other in near.items():
            changed = [] if not other else [replace(action, text=other)]
            yield name, "wrong", [*way[:at], *changed, *way[at + 1 :], _DONE]
    yield "all done, and then given up", "wrong", [*way, Action(ActionType.FAIL)]


def report(found: Sequence[JudgedState]) -> str:
    """A line for each state, and at the end how many of each kind were judged otherwise than they should."""
    wide = max(len(each.name) for each in found)
    lines = []
    for each in found:
        said = f"{each.task}  {each.kind:<7}  {each.name:<{wide}}  {each.score.value:g}"
        why = f"  WRONG: {dict(each.score.detail) or 'no detail'}"
        lines.append(said if each.right else said + why)
    kinds: tuple[tuple[EndKind, str], ...] = (("right", "refused"), ("wrong", "paid"), ("spoiled", "paid"))
    for kind, word in kinds:
        some = [each for each in found if each.kind == kind]
        lines.append(f"{kind}: {sum(not each.right for each in some)} of {len(some)} {word}")
    return "\n".join(lines)


_DONE: Final = Action(ActionType.DONE)


def _letters(action: Action) -> list[Action]:
    if action.type is not ActionType.TYPE or not action.text:
        return [action]
    return [replace(action, text=letter) for letter in action.text]


async def _played(desktop: Desktop, task: Task, actions: Sequence[Action]) -> bool:
    """Whether the actions came to their end: a desktop may refuse one, or end the episode before."""
    seen = await desktop.reset(task, task.seed)
    try:
        for action in actions:
            if seen.done:
                return action.type is ActionType.DONE
            seen = await desktop.step(action)
    except ActionRefused:
        return False
    return True


async def _way(desktop: Desktop, task: Task) -> list[Action]:
    """What the expert does. Raises ConfigError where there is none, or it does not come to its end."""
    way: list[Action] = []
    seen = await desktop.reset(task, task.seed)
    while len(way) <= (task.max_steps or MOST):
        if seen.done or (seen.expected is not None and seen.expected.action.type in ENDS):
            return way
        if seen.expected is None:
            raise ConfigError(f"{task.task_id}: there is no expert; a task of your own in `sources` needs `solved`")
        way.append(seen.expected.action)
        seen = await desktop.step(way[-1])
    raise ConfigError(f"{task.task_id}: the expert is not at its end after {len(way)} actions")


async def _judged(judging: Awaitable[Score]) -> Score:
    """The score; 0 for a state on which the judge raises, as in an evaluation. Raises InfraError."""
    try:
        return await judging
    except Exception as error:
        if isinstance(error, InfraError) and not isinstance(error, CheckerFailed):
            raise
        return Score(0.0, False, {"failure": f"{type(error).__name__}: {error}"})


async def judged_states(config: RunConfig, count: int) -> list[JudgedState]:
    """The states of the first `count` tasks. Raises ConfigError and InfraError."""
    tasks = tasks_of(config.environment, count, config.tasks.seed, config.options)
    own = {}
    if config.environment == "sources":
        from eval.environments.sources import customs  # needs an extra, which --help does not

        own = customs(config.options)
    found: list[JudgedState] = []
    for task in tasks:
        custom = own.get(task.task_id)
        if custom is not None and custom.solved is not None:
            found += await of_files(custom, task.task_id)
        else:
            found += await of_actions(config.environment, task, config.options)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("eval.endstates", "Show what a judge says of end states.", RunConfig)
    parser.add_argument("--tasks", type=int, default=1, help="so many of the tasks; default 1")
    arguments = parser.parse_args(argv)

    def run() -> int:
        if arguments.tasks < 1:
            raise ConfigError(f"--tasks {arguments.tasks}; allowed: 1 or more")
        config = configuration.load(Path(arguments.config), RunConfig)
        try:
            found = asyncio.run(judged_states(config, arguments.tasks))
        except InfraError as error:
            print(f"endstates: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        print(report(found))
        return int(not all(each.right for each in found))

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
