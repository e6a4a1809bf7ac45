"""The guarded computer: what the rollout gives an agent that runs its own loop.

The computer owns the episode's steps, frames, time limits and end. An agent tells it each answer of its model and lets
it do the answer's actions; whatever the agent or an SDK's loop around it does with an error, the computer remembers it,
and the rollout stops the agent when `ended` is set. A step is one answer of the model, however many actions it holds:
the limit of steps counts answers, as OSWorld's own loop does.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, runtime_checkable

import msgspec

from eval.actions import Action, ActionType, ImpossibleAction
from eval.actions.action import WITHOUT_MOUSE, asks, waits
from eval.agents.base import Decision, History, check_keys, held_after, judged, step_of, with_call
from eval.agents.desktop_calls import timed
from eval.config import ConfigError
from eval.desktop import (
    ActionRefused,
    BrokenByAgent,
    DescribedTools,
    Desktop,
    DesktopTimeout,
    InfraError,
    Interface,
    Observation,
    Task,
    ToolDesktop,
    answer_of,
    followed_on,
)
from eval.desktops.tools import TOOLS
from eval.episodes import Step, ToolCall
from eval.prompts import PastStep

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")
MAX_TURN: Final = 1000  # actions of one answer that come one by one
LIMIT: Final = "limit: "  # how the error of an answer begins that a server's limit kept from being given
ANSWERS_S: Final = 60.0  # seconds in which a desktop tells, after an action that took too long, that it is there
TOOL_S: Final = 120.0  # seconds after which a tool that should have ended is the infrastructure's failure


def no_mouse(tools: Sequence[str]) -> str:
    """What an agent is told that uses the mouse or the keyboard where there are only tools."""
    return f"there is no mouse and no keyboard here, only {', '.join(tools)}"


class EpisodeOver(Exception):
    """The episode has ended: there is nothing more to do on the computer."""


class Computer:
    """One episode, as its agent sees it.

    An agent whose answers come whole calls `answer`. One whose SDK does the actions one by one calls `begin` with the
    answer, and `act` for each action. Both raise EpisodeOver once the episode has ended, and InfraError when the
    desktop fails.

    task, observation  what the episode is about, and the present screen
    steps   the recorded steps
    failed  why the agent failed by its answers; "" while it has not
    failure the infrastructure's failure, or the desktop's that the agent broke, if there was one
    tools   names of the tools that may be called here; () where the interface is gui, or the desktop has none
    known   what is told of them, by name
    gui     whether mouse and keyboard may be used
    ended   set when the episode has ended, for whatever reason
    held    keys and mouse buttons that are down now, such as shift and button:left
    """

    def __init__(
        self,
        desktop: Desktop,
        task: Task,
        observation: Observation,
        *,
        max_steps: int,
        step_timeout: float,
        parse_failures: int = 1,
        refused: int | None = None,
        waiting: float = math.inf,
        save: Callable[[int, Observation], None] = lambda *_: None,
        room: Callable[[], Awaitable[None]] | None = None,
        interface: Interface = "gui",
    ) -> None:
        """
        step_timeout  seconds that an action may take beyond what it asks for
        waiting  seconds that the actions of the episode may ask to wait, together
        save  begins to keep the frame before a step; it may raise InfraError
        room  waits until what was begun is not too much; called before each action
        """
        self._desktop = desktop
        self.task = task
        self.observation = observation
        self.max_steps = max_steps
        self._step_timeout = step_timeout
        self._parse_failures = parse_failures
        self._refused = refused
        self._waiting = waiting  # what is left of it
        self._save = save
        self._room = room
        self._past: list[PastStep] = []
        self.tools = desktop.tools if interface != "gui" and isinstance(desktop, ToolDesktop) else ()
        self.known = {name: TOOLS[name] for name in self.tools if name in TOOLS}
        if self.tools and isinstance(desktop, DescribedTools):
            self.known.update(desktop.described)
        self.gui = interface != "tools"
        self.steps: list[Step] = []
        self.held: frozenset[str] = frozenset()
        self.failed = ""
        self.failure: InfraError | BrokenByAgent | None = None
        self.ended = asyncio.Event()
        self.heard = time.monotonic()  # when the agent last did something here, or the desktop finished doing it
        self.busy = False  # the desktop is at work
        self._shown = observation  # at the beginning of the open step
        self._failures = 0  # answers that were no action
        self._undone = 0  # answers of which something could not be done
        if observation.done or max_steps < 1:
            self.ended.set()

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the screenshot, in pixels; the coordinates of actions are fractions of it."""
        return self.observation.image.size

    def screenshot(self) -> Image.Image:
        """The present screen. Raises EpisodeOver."""
        self._hear()
        return self.observation.image

    async def answer(self, decision: Decision) -> Observation:
        """Records a whole answer as a step and does its actions, up to the first that cannot be done."""
        self.begin(decision)
        if decision.action is None:
            return self.observation
        for number, action in enumerate(decision.actions, 1):
            try:
                await self._do(action, number)
            except ActionRefused:
                break
            if self.ended.is_set():
                break
        if len(self.steps) >= self.max_steps:
            self.ended.set()
        return self.observation

    def begin(self, decision: Decision) -> None:
        """Records an answer as a new step. Actions that it does not hold yet may follow by `act`.

        One that was no action (`parse_error`), or that cannot be done (`refused`), counts; at the limit of its kind the
        episode ends. Nothing of it is done.
        """
        self._hear()
        if len(self.steps) >= self.max_steps:
            self._end()
        self._recall()
        self._shown = self.observation
        try:
            self._save(len(self.steps), self._shown)
        except InfraError as error:
            self._fail(error)
        self.steps.append(step_of(len(self.steps), decision, self._shown))
        if decision.parse_error is not None:
            self._failures += 1
            # at the server's limit no later answer can be another one
            if self._failures >= self._parse_failures or decision.parse_error.startswith(LIMIT):
                self.failed = f"no valid action: {decision.parse_error}"
        elif decision.refused is not None:
            self._count_refused(decision.refused)
        if self.undone and (self.failed or len(self.steps) >= self.max_steps):
            self.ended.set()

    @property
    def undone(self) -> str | None:
        """Why nothing more of the open answer is done: it was no action, or something in it could not be done."""
        return (self.steps[-1].parse_error or self.steps[-1].refused) if self.steps else None

    def _count_refused(self, why: str) -> None:
        """Something in the open answer could not be done. Later answers may follow, up to the limit of these."""
        self.steps[-1] = msgspec.structs.replace(self.steps[-1], refused=why)
        self._undone += 1
        if self._refused is not None and self._undone >= self._refused:
            self.failed = f"{self._undone} answers could not be done: {why}"
            self.ended.set()

    def refuse(self, why: str) -> None:
        """Notes that something in the open answer cannot be done, where its loop found that out."""
        if self.undone is None:
            self._count_refused(why)

    async def act(self, action: Action, call: ToolCall | None = None) -> Observation:
        """Does one action, as the next of the open step's; `call` is the call of a tool that it came from.

        Raises ActionRefused for an action that the desktop cannot do, and for all after it in the same answer;
        ValueError without an open step.
        """
        self._hear()
        if not self.steps:
            raise ValueError("an action before the first answer: call begin first")
        self._check_open(call)
        step = self.steps[-1]
        if len(step.actions) >= MAX_TURN:
            self.failed = f"more than {MAX_TURN} actions in one answer"
            self._end()
        further = (*step.further_actions, action) if step.action is not None else ()
        step = msgspec.structs.replace(
            step,
            action=step.action or action,
            further_actions=further,
            metrics=judged(step.action or action, self._shown),
        )
        self.steps[-1] = step
        if call is None:
            return await self._do(action, len(step.actions))
        try:
            observation = await self._do(action, len(step.actions))
        except ActionRefused as refused:
            self.note(msgspec.structs.replace(call, error=str(refused)))
            raise
        self.note(call)
        return observation

    async def call(self, call: ToolCall) -> str:
        """Does a call of a tool, as one of the open step's, and gives its result; the step tells both.

        Raises ActionRefused, with why for the agent to read, and what `act` raises.
        """
        self._hear()
        if not self.steps:
            raise ValueError("a call before the first answer: call begin first")
        self._check_open(call)
        if len(self.steps[-1].calls) >= MAX_TURN:
            self.failed = f"more than {MAX_TURN} calls in one answer"
            self._end()
        try:
            if call.name not in self.tools or not isinstance(self._desktop, ToolDesktop):
                raise ActionRefused(f"there is no tool {call.name[:60]!r} here")
            # a tool has a limit of its own, which is told to the agent
            with self._at_work():
                result, self.observation = await timed(
                    self._desktop.call(call.name, call.arguments), max(self._step_timeout, TOOL_S), call.name
                )
        except ActionRefused as refused:
            self._add(msgspec.structs.replace(call, error=str(refused)))
            self._count_refused(f"{call.name}: {refused}")
            raise
        self._add(msgspec.structs.replace(call, result=result))
        if self.observation.done:
            self.ended.set()
        return result

    async def follow(self, write: Callable[[Action], str]) -> None:
        """Records what a person does at the desktop, each action as a step, until they end the episode.

        write  the answer that a step tells: the action in words. Raises ConfigError where no person can work.
        """
        if (work := followed_on(self._desktop)) is None:
            raise ConfigError("agent human: a person cannot work on these desktops; allowed: environment desktop")
        try:
            async with contextlib.aclosing(work) as followed:
                async for before, action, after in followed:
                    self.observation = before
                    self.begin(Decision(write(action), action))
                    self.observation = after
                    said = action.type in (ActionType.DONE, ActionType.FAIL)
                    if said or after.done or len(self.steps) >= self.max_steps:
                        self.ended.set()
                        return
        except (InfraError, BrokenByAgent) as error:
            self._fail(error)

    def stop(self, why: str) -> None:
        """Ends the episode as a failure of the agent's answer, where its loop cannot go on. Raises EpisodeOver.

        The open step says why: as a parse_error where it has no action, else as what was refused.
        """
        if self.steps and not self.ended.is_set():
            field = "parse_error" if self.steps[-1].action is None else "refused"
            self.steps[-1] = msgspec.structs.replace(self.steps[-1], **{field: why})
        self.failed = self.failed or f"no valid action: {why}"
        self._end()

    def _check_open(self, call: ToolCall | None) -> None:
        """Raises ActionRefused where nothing more of the open answer is done."""
        if (why := self.undone) is not None:
            if call is not None:
                self._add(msgspec.structs.replace(call, error=why))
            raise ActionRefused(why)

    def _add(self, call: ToolCall) -> None:
        self.steps[-1] = with_call(self.steps[-1], call)

    def note(self, call: ToolCall) -> None:
        """Adds the call of a tool, with its result, to the open step; one of the same id is replaced."""
        step = self.steps[-1]
        kept = tuple(known for known in step.calls if not call.id or known.id != call.id)
        self.steps[-1] = msgspec.structs.replace(step, calls=(*kept, call))

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """While the desktop does something: the agent need not be heard, and what breaks ends the episode."""
        self.busy = True
        try:
            yield
        except (InfraError, BrokenByAgent) as error:
            self._fail(error)
        finally:
            self.busy = False
            self.heard = time.monotonic()

    async def _do(self, action: Action, number: int) -> Observation:
        try:
            if not self.gui and action.type not in WITHOUT_MOUSE:
                raise ActionRefused(no_mouse(self.tools))
            try:
                check_keys([action])
            except ImpossibleAction as error:
                raise ActionRefused(str(error)) from None
            if (left := self._waiting - waits(action)) < 0:
                raise ActionRefused(f"of the time to wait in this task only {self._waiting:g} s are left")
            self._waiting = left
            with self._at_work():
                if self._room is not None:
                    await self._room()
                await self._step(action, self._step_timeout + asks(action))
        except ActionRefused as refused:
            self._count_refused(f"action {number} ({action.type}): {refused}")
            raise
        self.held = held_after(self.held, action)
        if self.observation.done or action.type in (ActionType.DONE, ActionType.FAIL):
            self.ended.set()
        return self.observation

    async def _step(self, action: Action, limit: float) -> None:
        """The action on the desktop. Raises ActionRefused for one that takes too long on a desktop that answers."""
        try:
            self.observation = await timed(self._desktop.step(action), limit, "step")
        except DesktopTimeout:
            seen = await timed(answer_of(self._desktop), ANSWERS_S, "step")
            if seen is None:
                raise
            self.observation, self.held = seen, frozenset()
            raise ActionRefused("it took too long, and was given up") from None

    def history(self) -> History:
        """The task and the past steps, for an agent that is about to ask its model again."""
        self._recall()
        return History(self.task, tuple(self._past))

    def _recall(self) -> None:
        """The last step becomes a past one."""
        if len(self._past) < len(self.steps):
            step, shown = self.steps[-1], self._shown
            said = (step.thought, step.response, dict(shown.marks), step.further_actions, step.calls, self.undone)
            self._past.append(PastStep(step.action, shown.image, *said))

    def _hear(self) -> None:
        self.heard = time.monotonic()
        if self.failure is not None:
            raise self.failure
        if self.ended.is_set():
            raise EpisodeOver

    def _end(self) -> None:
        self.ended.set()
        raise EpisodeOver

    def _fail(self, error: InfraError | BrokenByAgent) -> None:
        self.failure = error
        self.ended.set()
        raise error


@runtime_checkable
class LoopingAgent(Protocol):
    """An agent that runs its own loop, as those of SDKs do. `name` is its name in the results.

    `run` may raise InfraError, for example when a server is gone: the episode is run again then.
    """

    name: str

    async def run(self, computer: Computer) -> None:
        """Works on the task until the episode has ended; it is cancelled when that happens. Many run at once."""
        ...
