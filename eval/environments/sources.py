"""The environment `sources`: tasks of several environments, of files and of one's own, chosen by filters.

Every task has somebody who judges it: its environment, a validator that reads the state of the desktop, a judge that
looks at the last screen, or a model (`vlm`). A task without one is an error before anything starts: nothing could ever
be learnt from it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from PIL import Image

from eval.actions import Action
from eval.config import Config, ConfigError, convert
from eval.desktop import (
    Desktop,
    Observation,
    Score,
    Task,
    WrappedDesktop,
)
from eval.desktops.judging.hacked import HackedScene, guesses
from eval.environments.custom import (
    JUDGED_BY,
    CustomTask,
    Positive,
    ValidatedScene,
    check_judge,
    entries,
    judged_by,
)
from eval.environments.desktop import of_this_machine, on_desktop
from eval.environments.registry import environment, for_hacker, parts_of
from eval.environments.splits import SPLIT_SEED
from eval.identity import TaskParts, digest_of
from eval.judges.vlm import VlmJudge, VlmJudgeConfig

if TYPE_CHECKING:
    from eval.desktops.live import TaskScene

HERE: Final = "eval.environments.sources"
CUSTOM: Final = "eval.environments.custom"
VLM: Final = "eval.judges.vlm"
SPLITS: Final = {"demo_training": "train", "demo_eval": "test", "ids": "train"}


class TaskSourceConfig(Config, frozen=True):
    """
    source       demo_training and demo_eval: tasks of an environment's training and of its evaluation; ids: those named
                 by `ids` among its training's; file: tasks of one's own from `path`; custom: those in `tasks`
    environment  of demo_training, demo_eval and ids
    options      of that environment, without its split
    count        how many of its tasks are drawn, to choose from
    first        the number of the first one within its split
    ids          task ids
    path         a file of tasks: *.jsonl, a task per line; *.json or *.yaml, a list of tasks
    tasks        tasks of one's own
    category     only tasks with this program or tag, or of this category
    difficulty   only tasks of this difficulty
    limit        at most so many; with `seed` drawn at random, else the first ones
    seed         of that choice
    """

    source: Literal["demo_training", "demo_eval", "ids", "file", "custom"]
    environment: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    count: Positive = 100
    first: Annotated[int, msgspec.Meta(ge=0)] = 0
    ids: list[str] = msgspec.field(default_factory=list)
    path: str | None = None
    tasks: list[Any] = msgspec.field(default_factory=list)
    category: str | None = None
    difficulty: str | None = None
    limit: Positive | None = None
    seed: int | None = None

    def check(self, where: str) -> None:
        """Raises ConfigError for fields that this source lacks, or that say nothing in it."""
        drawn = self.source in SPLITS
        needs = {"environment": drawn, "ids": self.source == "ids", "path": self.source == "file"}
        needs["tasks"] = self.source == "custom"
        for name, needed in needs.items():
            given = bool(getattr(self, name))
            if needed and not given:
                raise ConfigError(f"{where}.{name}: is missing; source {self.source} needs it")
            if given and not needed:
                raise ConfigError(f"{where}.{name}: says nothing with source {self.source}")
        if self.environment == "sources":
            raise ConfigError(f"{where}.environment: sources within sources; list them side by side")
        if "split" in self.options:
            raise ConfigError(f"{where}.options.split: source {self.source} says which split; leave it out")


class SourcesOptions(Config, frozen=True):
    """
    sources  where tasks come from, one or several; a task that two of them name counts once
    screen   width and height in pixels of the desktops of one's own tasks
    shown    files and folders of this machine that the desktop's programs see, read-only, beside /usr and /etc
    opengl   the desktops of one's own tasks offer OpenGL (GLX); it costs memory and time
    tree     reads the accessibility tree at each step of one's own tasks
    vlm      a model that looks at the last screens judges all tasks, in place of any other judge; its errors can be
             measured (python -m eval.judge_errors). None: none does
    """

    sources: Annotated[list[TaskSourceConfig], msgspec.Meta(min_length=1)]
    screen: tuple[int, int] = (1280, 720)
    shown: list[str] = msgspec.field(default_factory=list)
    opengl: bool = False
    tree: bool = False
    vlm: VlmJudgeConfig | None = None


@dataclass(frozen=True)
class SourcedTask:
    """A task and where it is done: an environment with its options, or our own desktop for a task of one's own."""

    task: Task
    environment: str = ""
    options: str = ""  # as JSON, to compare
    custom: CustomTask | None = None


class SourcedDesktop(WrappedDesktop):
    """Gives each task the desktop of its own environment. hacked: the one for a hacker."""

    def __init__(self, tasks: Sequence[SourcedTask], options: SourcesOptions, *, hacked: bool = False) -> None:
        super().__init__(None)
        self.known = {(each.task.task_id, each.task.seed): each for each in tasks}
        self.options = options
        self.hacked = hacked
        self.of: SourcedTask | None = None
        self.judge = None if options.vlm is None else VlmJudge(options.vlm)
        self.screens: list[Image.Image] = []  # the last ones
        self.done: list[Action] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        sourced = self.known[task.task_id, task.seed]
        kept = self.of is not None and (self.of.environment, self.of.options) == (sourced.environment, sourced.options)
        if not kept or self.inner is None:
            await self.close()
            self.inner = self._desktop(sourced)
        self.of, self.done, self.screens = sourced, [], []
        return await super().reset(task, seed)

    def _desktop(self, sourced: SourcedTask) -> Desktop:
        if sourced.custom is None:
            make = for_hacker(sourced.environment) if self.hacked else environment(sourced.environment).desktop
            return make(json.loads(sourced.options))
        from eval.desktops.isolation import check_shown
        from eval.desktops.live import LiveDesktop
        from eval.desktops.session import DesktopOptions
        from eval.environments.desktop import check_here

        check_here()
        check_shown(self.options.shown, "options.shown")
        chosen = self.options
        session = DesktopOptions(screen=chosen.screen, shown=tuple(chosen.shown), opengl=chosen.opengl)
        return LiveDesktop(lambda task, seed: self._scene(task), session, tree=self.options.tree)

    def _scene(self, task: Task) -> TaskScene:
        scene = ValidatedScene(self._custom(task))
        if not self.hacked:
            return scene
        return HackedScene(scene, lambda start: guesses(task.instruction, start, start))

    def _custom(self, task: Task) -> CustomTask:
        custom = self.known[task.task_id, task.seed].custom
        assert custom is not None
        return custom

    def did(self, action: Action) -> None:
        self.done.append(action)

    async def seen(self, observation: Observation) -> Observation:
        shown = 1 if self.judge is None else self.judge.config.screens
        self.screens = [*self.screens, observation.image][-shown:]
        return observation

    async def score(self) -> Score:
        assert self.of is not None
        custom = self.of.custom
        if self.judge is not None:
            asked = () if custom is None else custom.milestones
            return await self.judge.judge(self.of.task.instruction, self.screens, self.done, asked)
        if custom is not None and custom.judge is not None:
            return await judged_by(custom.judge, self.of.task, self.screens[-1], self.done)
        return await super().score()

    async def close(self) -> None:
        """Frees the desktop; the next reset chooses another one."""
        try:
            await super().close()
        finally:
            self.inner = None


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """The first `count` tasks of the sources, in their order. Each task has its own seed, so `seed` says nothing here.
    Raises ConfigError."""
    found = _sourced(options)
    if count > len(found):
        raise ConfigError(f"tasks.count: {count}, and the sources have {len(found)} tasks")
    return [each.task for each in found[:count]]


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A desktop for one episode at a time. Raises ConfigError."""
    return SourcedDesktop(_sourced(options), convert(dict(options), SourcesOptions, "options"))


def hacker(options: Mapping[str, Any]) -> Desktop:
    """The same with each environment's hacker. A task of one's own with a validator is judged after every guess
    (`judging.hacked`); one with a judge, who sees the screen only, as it is at the start. Raises ConfigError."""
    return SourcedDesktop(_sourced(options), convert(dict(options), SourcesOptions, "options"), hacked=True)


def provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the scores depend on beside the options: whether this machine hides its files from the agent's programs,
    where a desktop of it is used, and what the environments of the sources tell besides."""
    told: dict[str, Any] = {}
    others: list[dict[str, Any]] = []
    for name, chosen in dict.fromkeys((each.environment, each.options) for each in _sourced(options)):
        if not name:
            told |= of_this_machine({})
            continue
        besides = getattr(environment(name), "provenance", dict)(json.loads(chosen))
        told |= {key: besides.pop(key) for key in ("isolation",) if key in besides}
        if besides:
            others.append({"environment": name, **besides})
    return {**told, **({"told": others} if others else {})}


def parts(task: Task, options: Mapping[str, Any]) -> TaskParts:
    """What a task is made of: as in its own environment; of one's own, its validator or judge and its programs."""
    found = next(each for each in _sourced(options) if (each.task.task_id, each.task.seed) == (task.task_id, task.seed))
    vlm = judge_of(options)
    by_model = {} if vlm is None else {"judge": vlm.identity}
    if found.custom is None:
        of_environment = parts_of(found.environment, task, json.loads(found.options))
        return replace(of_environment, told={**of_environment.told, **by_model})
    custom = found.custom
    own = custom.validator or custom.judge or f"{CUSTOM}:ValidatedScene"
    judge = own if vlm is None else f"{VLM}:VlmJudge"
    made = on_desktop(
        HERE,
        (judge, f"{CUSTOM}:ValidatedScene", f"{CUSTOM}:judged_by"),
        (),
        None,
        ["eval.environments.registry:ENVIRONMENTS"],
    )
    told = {"start": digest_of({"files": custom.files, "start": custom.start, "changes": custom.changes})}
    if custom.solved is not None and custom.validator is None:
        told["solved"] = digest_of(custom.solved)
    if by_model:
        told["milestones"] = digest_of(custom.milestones)
    return replace(made, started=tuple(argv[0] for argv in custom.start if argv), told={**told, **by_model})


def judge_of(options: Mapping[str, Any]) -> VlmJudgeConfig | None:
    """The model that judges all tasks, where one does. Raises ConfigError."""
    return convert(dict(options), SourcesOptions, "options").vlm


def customs(options: Mapping[str, Any]) -> dict[str, CustomTask]:
    """The tasks of one's own, by their ids. Raises ConfigError."""
    return {each.task.task_id: each.custom for each in _sourced(options) if each.custom is not None}


def _sourced(options: Mapping[str, Any]) -> tuple[SourcedTask, ...]:
    convert(dict(options), SourcesOptions, "options")  # before the JSON, which would fail for what it cannot hold
    return _of_sources(json.dumps(dict(options), sort_keys=True))


@lru_cache(maxsize=8)
def _of_sources(options: str) -> tuple[SourcedTask, ...]:
    """All tasks, each once. Kept: every desktop of a training asks for them."""
    chosen = convert(json.loads(options), SourcesOptions, "options")
    found: dict[tuple[str, int], SourcedTask] = {}
    for number, source in enumerate(chosen.sources):
        where = f"options.sources[{number}]"
        source.check(where)
        for each in _filtered(_all(source, where, chosen.vlm is not None), source, where):
            key = (each.task.task_id, each.task.seed)
            if found.setdefault(key, each) != each:
                raise ConfigError(f"{where}: task {key[0]} with seed {key[1]} is another one in an earlier source")
    return tuple(found.values())


def _all(source: TaskSourceConfig, where: str, by_model: bool) -> list[SourcedTask]:
    if source.source == "custom":
        entered = [(f"{where}.tasks[{number}]", entry) for number, entry in enumerate(source.tasks)]
        return _customs(entered, where, by_model)
    if source.source == "file":
        assert source.path is not None
        return _customs(list(entries(Path(source.path))), where, by_model)
    assert source.environment is not None
    split = SPLITS[source.source]
    options = {**source.options, "split": split}
    first = SPLIT_SEED * ("train", "test").index(split) + source.first
    try:
        drawn = environment(source.environment).tasks(source.count, first, options)
    except ConfigError as error:
        raise ConfigError(f"{where}: environment {source.environment}: {error}") from None
    shown = json.dumps(options, sort_keys=True)
    found = [SourcedTask(task, source.environment, shown) for task in drawn]
    if source.source == "ids":
        if odd := [name for name in source.ids if name not in {each.task.task_id for each in found}]:
            some = ", ".join(dict.fromkeys(each.task.task_id for each in found[:5]))
            raise ConfigError(f"{where}.ids: {odd[0]!r} is none of the {len(found)} tasks drawn; allowed: {some}, ...")
        found = [each for name in source.ids for each in found if each.task.task_id == name]
    return found


def _customs(given: Sequence[tuple[str, Any]], where: str, by_model: bool) -> list[SourcedTask]:
    """Tasks of one's own; `given` are pairs of the place and what is written there. by_model: options.vlm judges."""
    found = []
    for number, (place, entry) in enumerate(given):
        if isinstance(entry, str):
            raise ConfigError(f"{place}: {entry!r} has nobody who judges it; give a mapping with {JUDGED_BY}")
        custom = convert(entry, CustomTask, place)
        check_judge(custom, place, by_model)
        for only in ("changes", "solved"):
            if (custom.judge or by_model) and getattr(custom, only) is not None:
                who = "options.vlm" if by_model else "`judge`"
                raise ConfigError(f"{place}.{only}: says nothing with {who}, which sees the screen only")
        if custom.solved is not None and all(custom.files.get(file) == text for file, text in custom.solved.items()):
            raise ConfigError(f"{place}.solved: no file of it is other than at the start")
        name = custom.id or f"custom-{number}"
        tags = (custom.category,) if custom.category else ()
        task = Task(name, custom.instruction, 0, custom.max_steps, tags=tags, difficulty=custom.difficulty)
        found.append(SourcedTask(task, custom=custom))
    names = [each.task.task_id for each in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{where}: two tasks have the id {twice}")
    return found


def _filtered(found: Sequence[SourcedTask], source: TaskSourceConfig, where: str) -> list[SourcedTask]:
    kept = [
        each
        for each in found
        if (source.category is None or source.category in (*each.task.programs, *each.task.tags))
        and source.difficulty in (None, each.task.difficulty)
    ]
    if not kept:
        seen = sorted({tag for each in found for tag in (*each.task.programs, *each.task.tags)} - {""})
        raise ConfigError(f"{where}: no task is left after the filters; categories here: {', '.join(seen) or 'none'}")
    if source.limit is not None and source.limit < len(kept):
        if source.seed is None:
            return kept[: source.limit]
        chosen = random.Random(source.seed).sample(range(len(kept)), source.limit)
        return [kept[index] for index in sorted(chosen)]
    return kept
