"""What an environment promises, and which failures are the environment's own.

`InfraError` and its subclasses mean that the environment failed: the episode is run again, and the failure is never a
score. Whatever the agent does wrong is a score of 0. An action that the desktop cannot do raises `ActionRefused`: that
is the agent's error, and the episode goes on. A ConfigError ends the evaluation. Every other exception of an
environment is a fault of its code (`EnvironmentFault`): nothing is known of that episode, and the others go on. But a
checker that raises on what the agent left, and judges the untouched state, was broken by the agent: a score of 0.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.actions.geometry import Box, distance_score, inside

if TYPE_CHECKING:
    from PIL import Image

# what an agent may use: mouse and keyboard, tools that it calls, or both (ComputerRL's API-GUI)
Interface = Literal["gui", "tools", "both"]
PAIRS: Final = (("x", "y"), ("x2", "y2"), ("width", "height"))  # of an action's fields, each on the screen


class InfraError(Exception):
    """The environment, not the agent, failed."""


class DesktopGone(InfraError):
    """The desktop or its server cannot be reached any more."""


class DesktopTimeout(InfraError, TimeoutError):
    """The desktop did not answer in time."""


class AgentTimeout(InfraError, TimeoutError):
    """The agent, or the server of its model, did not answer in time."""


class BadFrame(InfraError):
    """A screenshot that cannot be decoded."""


class ActionRefused(Exception):
    """The desktop cannot do this action, and did nothing of it. The message says why, for the agent to read."""


class EnvironmentFault(InfraError):
    """The environment's own code raised something that is none of these."""


class CheckerFailed(EnvironmentFault):
    """The checker raised on the state that it was to judge. Whether the agent left a state that nobody could judge, or
    the checker judges nothing here, shows on the untouched state (eval.rollout.task_run)."""


class SetupFailed(InfraError):
    """The start state of the task could not be prepared, so the task must not be run."""


class NotRunHere(SetupFailed):
    """The task cannot run on this machine, however often it is tried: it lacks a program, a download, an account, or
    its file cannot be read. Its outcome is "not run", with this reason."""


class BrokenByAgent(Exception):
    """The agent's own doing broke the desktop, or what is judged in it: a score of 0, and no further try."""


@dataclass(frozen=True)
class Task:
    """One task. `options` belong to the environment; `max_steps` None leaves it to the evaluation.

    cluster  tasks of one cluster are not independent of each other, as several seeds of one task; intervals and tests
             take the cluster as the unit. None: independent of all others
    programs, difficulty  what results are shown by, where the environment tells
    feasible whether the task can be done; None: not known
    trial    which repetition of the task it is, from 0: the same start state and the same judge
    not_run  why it cannot run here, where that is known before a desktop is made
    identity all that can change its start, answer or verdict (eval.identity), by name; empty: not known
    """

    task_id: str
    instruction: str
    seed: int = 0
    max_steps: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    cluster: str | None = None
    programs: tuple[str, ...] = ()
    difficulty: str = ""
    feasible: bool | None = None
    trial: int = 0
    not_run: str = ""
    identity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Expected:
    """What is right in this state, and the box (normalised) in which a point counts as the same.

    A scripted expert knows the box; a recording of a person has none. There the distance decides, by AgentNetBench's
    rule (`eval.actions.geometry.distance_score`).
    """

    action: Action
    box: Box | None = None

    def hit(self, action: Action | None) -> bool:
        """Whether the action's point lies in the box. False without a point or a box."""
        return (
            action is not None and action.point is not None and self.box is not None and inside(action.point, self.box)
        )

    def matches(self, action: Action | None) -> bool:
        """The same action: equal but for the point, which may lie anywhere in the box, or near the point if there is
        no box. See `credit`."""
        return self.credit(action) == 1.0

    def credit(self, action: Action | None) -> float:
        """How right the action is, from 0 to 1.

        0 if anything but a place on the screen differs. A point counts 1 in the box and 0 outside; without a box, and
        for the end of a drag, its distance decides. Of several places the mean counts, as AgentNetBench does with the
        two ends of a drag.
        """
        if action is None or action.type is not self.action.type:
            return 0.0
        if action == self.action:  # also where the rounded point of an exact answer falls outside a small box
            return 1.0
        mine, other = self.action.to_json(), action.to_json()
        scores = []
        for names in PAIRS:
            if all(name in mine and name in other for name in names):
                wanted, given = [mine.pop(name) for name in names], [other.pop(name) for name in names]
                if names == PAIRS[0] and self.box is not None:
                    scores.append(float(self.hit(action)))
                else:
                    scores.append(distance_score(math.dist(wanted, given)))
        return sum(scores) / len(scores) if mine == other else 0.0


@dataclass(frozen=True)
class Observation:
    """What the agent can see: the screenshot, and the screen's size in pixels (w, h), which may differ from its size.

    `marks` gives numbered boxes (normalised) around what can be pointed at, where the environment knows them; a prompt
    of the marks form draws them on the image (`eval.prompts.marks`), the environment does not. `expected` is for
    measuring and for the scripted agent; no prompt shows it. `done`: the environment ended the episode. `tree`: what
    programs tell of their windows, where the environment has it; a prompt may show it beside or instead of the image.
    """

    image: Image.Image
    screen: tuple[int, int]
    marks: Mapping[int, Box] = field(default_factory=dict)
    expected: Expected | None = None
    done: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    tree: Tree | None = None


@dataclass(frozen=True)
class Score:
    """The judgement of the environment's state: `value` in [0, 1], and whether it counts as solved. Numbers in
    detail["figures"], by name, become metrics of the task's record."""

    value: float
    success: bool
    detail: Mapping[str, Any] = field(default_factory=dict)


def checked(score: Score) -> Score:
    """The score. Raises InfraError for a value that is no judgement: nothing is known of the episode then."""
    if not 0 <= score.value <= 1:
        raise InfraError(f"the checker gave the score {score.value}; allowed: from 0 to 1")
    return score


class Desktop(Protocol):
    """One environment, used for one episode at a time. Each call may raise InfraError."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """Prepares the start state of the task and shows it. The same task and seed give the same state."""
        ...

    async def step(self, action: Action) -> Observation:
        """Does one action. done and fail are the last of an episode and only tell how the agent ended it.

        Raises ActionRefused for an action that this desktop cannot do; it may be asked for another then."""
        ...

    async def score(self) -> Score:
        """Judges the present state. Called once, after the last step."""
        ...

    async def close(self) -> None:
        """Frees what the desktop holds. Called once, also after an error."""
        ...


@runtime_checkable
class ToolDesktop(Protocol):
    """What a desktop has besides, where agents can call tools on it. `tools`: their names."""

    @property
    def tools(self) -> tuple[str, ...]: ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        """Does a call; gives its result in words, and the screen after it. Raises ActionRefused, with why for the agent
        to read."""
        ...


@runtime_checkable
class DescribedTools(Protocol):
    """What a tool desktop has besides, where its tools are others than eval.desktops.tools has. `described`: each as an
    eval.desktops.tools.Tool, by name."""

    @property
    def described(self) -> Mapping[str, Any]: ...


@runtime_checkable
class AnsweringDesktop(Protocol):
    """What a desktop has besides, where it can tell a long action from a dead desktop."""

    async def answers(self) -> Observation | None:
        """Called after a step that took too long, and was given up: ends it, and shows the screen. None where the
        desktop does not answer: then it is gone."""
        ...


async def answer_of(desktop: Desktop) -> Observation | None:
    """What a desktop shows that was given up in the middle of an action; None where it is gone, or cannot tell."""
    return await desktop.answers() if isinstance(desktop, AnsweringDesktop) else None


# what a person does: the screen before an action, the action, and the screen after it
Followed = AsyncGenerator[tuple[Observation, Action, Observation]]


@runtime_checkable
class PersonDesktop(Protocol):
    """What a desktop has besides, where a person can work on it."""

    def follow(self) -> Followed | None:
        """What a person does, until they say done or fail. Tells the person where to work, and how to end. None where
        no person can. Raises SetupFailed."""
        ...


def followed_on(desktop: object) -> Followed | None:
    """What a person does on a desktop; None where none can work on it."""
    return desktop.follow() if isinstance(desktop, PersonDesktop) else None


class WrappedScreen:
    """Passes on to `inner` what a class of it does not do itself, but for tools. `inner`: None before the first reset,
    where that chooses it."""

    def __init__(self, inner: Desktop | None) -> None:
        self.inner = inner

    async def seen(self, observation: Observation) -> Observation:
        """Is given each observation, and gives what others see of it."""
        return observation

    def did(self, action: Action) -> None:
        """Is given each action that was done, before the observation after it."""

    async def reset(self, task: Task, seed: int) -> Observation:
        return await self.seen(await self._chosen().reset(task, seed))

    async def step(self, action: Action) -> Observation:
        observation = await self._chosen().step(action)
        self.did(action)
        return await self.seen(observation)

    async def answers(self) -> Observation | None:
        observation = await answer_of(self._chosen())
        return None if observation is None else await self.seen(observation)

    def follow(self) -> Followed | None:
        followed = followed_on(self._chosen())
        return None if followed is None else self._follow(followed)

    async def _follow(self, followed: Followed) -> Followed:
        """Gives `seen` each screen once: that after an action is mostly the one before the next."""
        shown: Observation | None = None
        async with contextlib.aclosing(followed):
            async for before, action, after in followed:
                if before is not shown:
                    shown, told = before, await self.seen(before)
                first = told
                self.did(action)
                if after is not shown:
                    shown, told = after, await self.seen(after)
                yield first, action, told

    async def score(self) -> Score:
        return await self._chosen().score()

    async def close(self) -> None:
        if self.inner is not None:
            await self.inner.close()

    def _chosen(self) -> Desktop:
        assert self.inner is not None, "it is reset first"
        return self.inner


class WrappedDesktop(WrappedScreen):
    """Passes on the tools of `inner`, too."""

    @property
    def has_tools(self) -> bool:
        return has_tools(self.inner)

    @property
    def tools(self) -> tuple[str, ...]:
        return self.inner.tools if isinstance(self.inner, ToolDesktop) else ()

    @property
    def described(self) -> Mapping[str, Any]:
        """Of a desktop without such tools, none."""
        return self.inner.described if isinstance(self.inner, DescribedTools) else {}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        inner: object = self.inner
        if not isinstance(inner, ToolDesktop):
            raise ActionRefused(f"there is no tool {name[:60]!r} here")
        said, observation = await inner.call(name, arguments)
        return said, await self.seen(observation)


def has_tools(desktop: object) -> bool:
    """Whether agents can call tools on a desktop that was reset."""
    return desktop.has_tools if isinstance(desktop, WrappedDesktop) else isinstance(desktop, ToolDesktop)


class Environment(Protocol):
    """An environment: a module of ours, or an object of a user's own (eval.environments.registry finds both).

    Both methods raise ConfigError for options that they do not know, and `tasks` SetupFailed where what tells them is
    not there now, such as a server. More may be added: `redraw(task, seed,
    options) -> Task`, the task of the same template with another seed, for `fresh` of training.rl;
    `hacker(options) -> Desktop`, for `hacker` of an evaluation: a desktop whose `score` does everything that a checker
    might take for the work by mistake, and gives the best judgement, with the way as its detail `hack`;
    `solvers(options) -> dict`, name -> function without arguments that gives a desktop whose `expected` goes another
    way than the expert, for `solver` of a scripted agent (eval.judge_errors plays those named second and wrong); and
    `parts(task, options) -> eval.identity.TaskParts`, what a task is made of, where that is less or more than all of
    the environment's code."""

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        """`count` tasks; the same arguments give the same tasks, and no seed below `seed` is used."""
        ...

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        """A new desktop, for one episode. Many may be open at once."""
        ...
