"""Environments by name: ours from a dict, a user's own by import path."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from eval.config import Config, ConfigError
from eval.config.importing import FORM, call, is_path, load_object, require_methods
from eval.desktop import Desktop, Environment, SetupFailed, Task
from eval.identity import TaskParts, identity

if TYPE_CHECKING:
    from eval.judges.vlm import VlmJudgeConfig

ENVIRONMENTS: Final = {
    "android": "eval.environments.android",
    "click": "eval.environments.click",
    "desktop": "eval.environments.desktop",
    "gtk-forms": "eval.benchmarks.gtk_forms.environment",
    "gtk-login": "eval.benchmarks.gtk_login.environment",
    "gymnasium": "eval.environments.gymnasium",
    "linux-chain": "eval.benchmarks.linux_chain.environment",
    "linux-desktop": "eval.benchmarks.linux_desktop.environment",
    "linux-safety": "eval.benchmarks.linux_safety.environment",
    "login": "eval.environments.login",
    "mcp": "eval.environments.mcp",
    "openenv": "eval.environments.openenv",
    "osworld": "eval.benchmarks.osworld.environment",
    "sources": "eval.environments.sources",
    "versions": "eval.environments.versions",
}
# of a field that names one, with the words that its help says
EnvironmentName = Annotated[
    str, msgspec.Meta(description=f"{', '.join(ENVIRONMENTS)}, or one of your own as `package.module:name`")
]
WITH_TEMPLATES: Final = {
    ENVIRONMENTS[name]
    for name in ("gtk-forms", "gtk-login", "gymnasium", "linux-chain", "linux-desktop", "linux-safety", "login")
}
ENVIRONMENT_METHODS: Final = {"tasks": ("count", "seed", "options"), "desktop": ("options",)}
DESKTOP_METHODS: Final = {"reset": ("task", "seed"), "step": ("action",), "score": (), "close": ()}


class TasksConfig(Config, frozen=True):
    """Which tasks.

    count  how many
    seed   of the first task; the others have the seeds after it
    """

    count: Annotated[int, msgspec.Meta(ge=1)]
    seed: Annotated[int, msgspec.Meta(ge=0)]


class CheckedEnvironment:
    """An environment of a user's own: whatever it gives that breaks the protocol is a ConfigError."""

    def __init__(self, path: str, environment: Environment) -> None:
        self.where = f"environment {path}"
        self.environment = environment

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        try:
            tasks = call(self.environment.tasks, self.where, count, seed, options)
        except ConfigError as error:
            if isinstance(error.__cause__, SetupFailed):
                raise error.__cause__ from None
            raise
        if not isinstance(tasks, list | tuple) or not all(isinstance(task, Task) for task in tasks):
            raise ConfigError(f"{self.where}: tasks must give a list of eval.desktop.Task, not {_kinds(tasks)}")
        if len(tasks) != count:
            raise ConfigError(f"{self.where}: tasks gave {len(tasks)} tasks where {count} were asked for")
        if len({(task.task_id, task.seed) for task in tasks}) < count:
            raise ConfigError(f"{self.where}: tasks gave two tasks with the same task_id and seed")
        return list(tasks)

    def redraw(self, task: Task, seed: int, options: Mapping[str, Any]) -> Task:
        """What its method `redraw` gives, where it has one (`redrawing`)."""
        new = call(self.environment.redraw, self.where, task, seed, options)  # type: ignore[attr-defined]
        if not isinstance(new, Task) or new.seed != seed:
            told = f"one with seed {new.seed}" if isinstance(new, Task) else f"a {type(new).__name__}"
            raise ConfigError(f"{self.where}: redraw must give an eval.desktop.Task with seed {seed}, not {told}")
        return new

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return self._checked("desktop", options)

    def hacker(self, options: Mapping[str, Any]) -> Desktop:
        """What its method `hacker` gives, or without one what `desktop` gives (`for_hacker`)."""
        return self._checked("hacker" if hasattr(self.environment, "hacker") else "desktop", options)

    def _checked(self, method: str, options: Mapping[str, Any]) -> Desktop:
        desktop: Desktop = call(getattr(self.environment, method), self.where, options)
        where = f"{self.where}: the {type(desktop).__name__} that {method} gave"
        require_methods(desktop, where, DESKTOP_METHODS, coroutines=True)
        return desktop


def environment(name: str) -> Environment:
    """The environment of this name, or the user's own at this import path: an object with `tasks` and `desktop`, or
    a class that makes one without arguments.

    Raises ConfigError for a name that is not in ENVIRONMENTS, and for an import path that leads to no environment.
    """
    if is_path(name):
        where = f"environment {name}"
        loaded = load_object(name, f"environment: {name}")
        if inspect.isclass(loaded):
            loaded = call(loaded, where)
        require_methods(loaded, where, ENVIRONMENT_METHODS)
        return CheckedEnvironment(name, loaded)
    if name not in ENVIRONMENTS:
        raise ConfigError(
            f"environment: {name!r} is unknown; allowed: {', '.join(ENVIRONMENTS)}, or one of your own as {FORM}"
        )
    return importlib.import_module(ENVIRONMENTS[name])


def written_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as records tell them: with what the scores of an environment depend on besides, such as the revision
    of its task files (its `provenance`). Raises ConfigError."""
    provenance = getattr(environment(name), "provenance", None)
    return dict(options) if provenance is None else {**options, **provenance(options)}


def tasks_of(name: str, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks of an environment, each with its identity. Raises ConfigError and SetupFailed."""
    world = environment(name)
    return [_identified(name, world, task, options) for task in world.tasks(count, seed, options)]


def identified(name: str, task: Task, options: Mapping[str, Any]) -> Task:
    """A task of an environment with its identity. Raises ConfigError."""
    return _identified(name, environment(name), task, options)


def parts_of(name: str, task: Task, options: Mapping[str, Any]) -> TaskParts:
    """What a task of an environment is made of. Raises ConfigError."""
    return _parts(name, environment(name), task, options)


def _identified(name: str, world: Environment, task: Task, options: Mapping[str, Any]) -> Task:
    return replace(task, identity=identity(_parts(name, world, task, options)))


def _parts(name: str, world: Environment, task: Task, options: Mapping[str, Any]) -> TaskParts:
    """What the environment says, or else all of its code."""
    inner = world.environment if isinstance(world, CheckedEnvironment) else world
    if (told := getattr(inner, "parts", None)) is not None:
        parts = call(told, f"environment {name}", task, options)
        if not isinstance(parts, TaskParts):
            raise ConfigError(f"environment {name}: parts must give an eval.identity.TaskParts, not {_kinds(parts)}")
        return parts
    if inner is not world:
        return TaskParts((name,))
    return TaskParts((f"{ENVIRONMENTS[name]}:tasks", f"{ENVIRONMENTS[name]}:desktop"))


def redrawing(name: str) -> Callable[[Task, int, Mapping[str, Any]], Task]:
    """The function of an environment that draws a task's template anew: (task, seed, options) -> the task of that seed.

    Raises ConfigError for an environment that has none."""
    world = environment(name)
    inner = world.environment if isinstance(world, CheckedEnvironment) else world
    if not callable(getattr(inner, "redraw", None)):
        able = ", ".join(sorted(each for each, path in ENVIRONMENTS.items() if path in WITH_TEMPLATES))
        raise ConfigError(
            f"fresh: the environment {name} cannot draw a task anew; allowed: {able}, or one of your own with a method "
            "`redraw(task, seed, options)`"
        )
    made: Callable[[Task, int, Mapping[str, Any]], Task] = world.redraw  # type: ignore[attr-defined]
    return lambda task, seed, options: _identified(name, world, made(task, seed, options), options)


def for_hacker(name: str) -> Callable[[Mapping[str, Any]], Desktop]:
    """The function of an environment that gives a desktop on which a reward hacker works, options -> desktop: reset to
    the task, its score is the best that the checker gives to anything that is not the work. Of an environment that has
    none it gives a plain desktop: saying `done` at once is then all that a hacker can do."""
    world = environment(name)
    made: Callable[[Mapping[str, Any]], Desktop] = getattr(world, "hacker", world.desktop)
    return made


def solvers_of(name: str, options: Mapping[str, Any]) -> dict[str, Callable[[], Desktop]]:
    """The ways to go that an environment knows beside its expert's, by name: each gives a desktop whose `expected` goes
    it. Empty where it has no function `solvers`. Raises ConfigError."""
    world = environment(name)
    inner = world.environment if isinstance(world, CheckedEnvironment) else world
    made = getattr(inner, "solvers", None)
    return {} if made is None else dict(call(made, f"environment {name}", options))


def with_solver(name: str, options: Mapping[str, Any], solver: str) -> Desktop:
    """A desktop whose `expected` goes this way. Raises ConfigError."""
    known = solvers_of(name, options)
    if solver not in known:
        raise ConfigError(f"solver: {solver!r}; allowed in the environment {name}: {', '.join(known) or 'none'}")
    return known[solver]()


def judge_of(name: str, options: Mapping[str, Any]) -> VlmJudgeConfig | None:
    """The model that judges the tasks of an environment, where one does. Raises ConfigError."""
    found: VlmJudgeConfig | None = getattr(environment(name), "judge_of", lambda _: None)(options)
    return found


def knows_hacks(name: str) -> bool:
    """Whether the environment itself knows ways of a reward hacker. Raises ConfigError."""
    world = environment(name)
    return hasattr(world.environment if isinstance(world, CheckedEnvironment) else world, "hacker")


def _kinds(value: object) -> str:
    if not isinstance(value, list | tuple):
        return f"a {type(value).__name__}"
    return f"one of {', '.join(sorted({type(item).__name__ for item in value}))}"
