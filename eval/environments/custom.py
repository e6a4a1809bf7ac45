"""A task of one's own on a real desktop: what it begins with, and who judges it."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.config import Config, ConfigError
from eval.config.importing import load_object
from eval.desktop import (
    BrokenByAgent,
    CheckerFailed,
    Desktop,
    Expected,
    InfraError,
    Observation,
    Score,
    Task,
    WrappedDesktop,
)
from eval.desktops.judging import home
from eval.desktops.stage import DesktopStage

if TYPE_CHECKING:
    from PIL import Image

JUDGED_BY: Final = (
    "`validator` or `judge`, as package.module:name, or `solved`, the files of a right end; or options.vlm, a model "
    "that judges all tasks"
)
Positive = Annotated[int, msgspec.Meta(ge=1)]


class CustomTask(Config, frozen=True):
    """A task of one's own, on a real desktop of this machine.

    instruction  what is asked
    id           its name in records; none: custom-N, its number in its source
    validator    `package.module:name` of a function (stage, actions done) that reads the desktop's state
                 (eval.desktops.stage.DesktopStage) and gives True, False, a number from 0 to 1 or a Score
    judge        the same, of a function (task, last screenshot, actions done); give one of both. Either may be async.
                 With options.vlm neither is needed
    milestones   with options.vlm: questions about the last screens, each a part of the work; none: whether it is done
    files        path in the desktop's home -> text, written before it begins
    start        programs that are started, each a list of program and arguments; the task begins when all have a window
    changes      with a validator: paths that may be new, changed or gone in the end. All else in the home must be as it
                 was (eval.desktops.judging.home), or the score is 0. none: the validator alone decides
    solved       one right end, path -> text of files that are other in the end; null: it is gone. With a validator
                 `python -m eval.endstates` makes other ends of it, and shows what the validator says of each. Without a
                 validator and a judge the files must be so in the end, but for a line break at their end
    max_steps    of an episode
    category, difficulty  what sources filter by
    """

    instruction: str
    id: str | None = None
    validator: str | None = None
    judge: str | None = None
    milestones: list[str] = msgspec.field(default_factory=list)
    files: dict[str, str] = msgspec.field(default_factory=dict)
    start: list[list[str]] = msgspec.field(default_factory=list)
    changes: list[str] | None = None
    solved: dict[str, str | None] | None = None
    max_steps: Positive | None = None
    category: str = ""
    difficulty: str = ""


class ValidatedScene:
    """The start state of a task of one's own, and its validator."""

    def __init__(self, custom: CustomTask) -> None:
        self.custom = custom
        self._start: home.Home | None = None

    async def prepare(self, stage: DesktopStage) -> None:
        for path, text in self.custom.files.items():
            await stage.write_file(path, text.encode())
        for argv in self.custom.start:
            await stage.start(argv)
        await stage.windows(len(self.custom.start))
        if self.custom.changes is not None:
            self._start = await home.read_home(stage)

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        return None

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        if self.custom.validator is not None:
            score = await judged_by(self.custom.validator, stage, done)
        else:
            score = await _by_files(stage, self.custom.solved or {}, done)
        if self._start is None or self.custom.changes is None:
            return score
        return await home.judged(stage, self._start, home.Allowed(self.custom.changes), score)


async def _by_files(stage: DesktopStage, solved: Mapping[str, str | None], done: Sequence[Action]) -> Score:
    """Whether the files are as in the right end. Who says FAIL has not solved it."""
    right = {}
    for path, text in solved.items():
        try:
            found = (await stage.read_file(path)).decode("utf-8", "replace")
        except FileNotFoundError:
            found = None
        same = found is not None and text is not None and found.removesuffix("\n") == text.removesuffix("\n")
        right[path] = same or (found is None and text is None)
    gave_up = bool(done) and done[-1].type is ActionType.FAIL
    return Score(float(all(right.values()) and not gave_up), all(right.values()) and not gave_up, {"files": right})


async def judged_by(path: str, *arguments: Any) -> Score:
    """What a validator or judge says. Raises CheckerFailed where it fails, and InfraError where it says something else:
    that is no score."""
    where = f"validator {path}"
    try:
        given = load_object(path, where)(*arguments)
        said = await given if inspect.isawaitable(given) else given
    except (InfraError, BrokenByAgent):
        raise
    except Exception as error:
        raise CheckerFailed(f"{where}: {type(error).__name__}: {error}") from error
    score = said if isinstance(said, Score) else None
    if isinstance(said, bool | int | float):
        score = Score(float(said), float(said) >= 1)
    if score is None or not (math.isfinite(score.value) and 0 <= score.value <= 1):
        raise InfraError(f"{where}: gave {said!r}; allowed: True, False, a number from 0 to 1, or a Score")
    return score


class TwiceJudged(WrappedDesktop):
    """The environment's score counts; the other one is its detail `held_out`, {value, success}.

    path  `package.module:name` of a function (task, last screenshot, actions done). Where it fails, the episode is run
          again, and is never a score.
    """

    def __init__(self, inner: Desktop, path: str) -> None:
        super().__init__(inner)
        self.path = path
        self.task: Task | None = None
        self.last: Image.Image | None = None
        self.done: list[Action] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        self.task, self.done = task, []
        return await super().reset(task, seed)

    def did(self, action: Action) -> None:
        self.done.append(action)

    async def seen(self, observation: Observation) -> Observation:
        self.last = observation.image
        return observation

    async def score(self) -> Score:
        score = await super().score()
        try:
            other = await judged_by(self.path, self.task, self.last, self.done)
        except CheckerFailed as error:
            raise InfraError(str(error)) from error  # it must never decide a score, not even one of 0
        return replace(score, detail={**score.detail, "held_out": {"value": other.value, "success": other.success}})


def check_judge(custom: CustomTask, place: str, by_model: bool) -> None:
    """Raises ConfigError for a task that nobody judges, or two do."""
    if custom.milestones and not by_model:
        raise ConfigError(f"{place}.milestones: questions for a model; give options.vlm")
    if (by_model or custom.solved) and not custom.validator and not custom.judge:
        return
    if (custom.validator is None) == (custom.judge is None):
        said = "has both" if custom.validator else "nobody judges it"
        raise ConfigError(f"{place}: {said}; allowed: one of {JUDGED_BY}")
    path, field = (custom.validator, "validator") if custom.validator else (custom.judge, "judge")
    assert path is not None
    _callable(path, f"{place}.{field}: {path}")


def _callable(path: str, where: str) -> Callable[..., Any]:
    loaded = load_object(path, where)
    if not callable(loaded):
        raise ConfigError(f"{where}: is a {type(loaded).__name__}, not a function")
    function: Callable[..., Any] = loaded
    return function


def entries(path: Path) -> Iterator[tuple[str, Any]]:
    """(file:line, what stands there) for each task of a file. Raises ConfigError."""
    import yaml  # of an extra, which no --help needs

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if path.suffix == ".jsonl":
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    yield f"{path}:{number}", json.loads(line)
                except json.JSONDecodeError as error:
                    raise ConfigError(f"{path}:{number}: {error}") from None
        return
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(node, yaml.SequenceNode):
        raise ConfigError(f"{path}: is no list of tasks")
    for place, entry in zip(node.value, content, strict=True):
        yield f"{path}:{place.start_mark.line + 1}", entry
