"""What an agent promises: it decides for many episodes at once; and the step of an episode that a decision becomes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import msgspec

from eval.accessibility.visible import points_at_control
from eval.actions import Action, ActionType, ImpossibleAction, ParseError
from eval.actions.dialects.base import AgentTurn, Response, read_answer
from eval.actions.dialects.strict_json import shown
from eval.actions.keys import key_name
from eval.desktop import Observation, Task
from eval.episodes import Step, TokenUsage, ToolCall, frame_name, tree_name
from eval.prompts import PastStep
from eval.prompts.demonstrations import Demonstration


@dataclass(frozen=True)
class Decision:
    """One answer. `action` is None where `parse_error` says why the response was no action, where `refused` says why
    its action cannot be done, and where it holds calls of tools alone (docs/explanation/answers.md).

    frame            (width, height) in which the response's coordinates are; None: they are fractions of the screen, or
                     marks
    further_actions  the actions of the answer after `action`, in their order
    calls            the calls of tools in the answer, where the agent's interface has calls
    usage, cost      tokens as the server counts them, and USD
    raw              the answer as its server gave it, as JSON

    Halves of surrogate pairs, which a JSON API can hand on and no file holds, become escapes such as `\\ud800`.
    """

    response: str
    action: Action | None
    thought: str | None = None
    parse_error: str | None = None
    refused: str | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    frame: tuple[int, int] | None = None
    further_actions: tuple[Action, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage | None = None
    cost: float | None = None
    raw: dict[str, Any] | None = None

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions of the answer, in their order."""
        return () if self.action is None else (self.action, *self.further_actions)

    def single(self) -> Decision:
        """The decision where exactly one action is wanted: several are no valid action there."""
        if not self.further_actions:
            return self
        why = f"{len(self.actions)} actions instead of one"
        return replace(self, action=None, further_actions=(), parse_error=why)

    def __post_init__(self) -> None:
        for name in ("response", "thought", "parse_error", "refused"):
            if isinstance(text := getattr(self, name), str):
                object.__setattr__(self, name, text.encode(errors="backslashreplace").decode())


@dataclass(frozen=True)
class History:
    """What an agent knows of its episode besides the present observation: the task and the past steps.

    demonstration  shown before the task; None: the agent's prompt builder chooses
    """

    task: Task
    past: Sequence[PastStep] = field(default_factory=tuple)
    demonstration: Demonstration | None = None


@runtime_checkable
class Agent(Protocol):
    """`name` is the agent's name in the results. `parallel` is how many calls of `act` may run at once: many for a
    served model. `batch_size`, where it has one, is how many observations one call takes at once: as soon as so many
    wait, it is called.

    `act` may raise InfraError, for example when a server is gone: the episodes are then run again.
    """

    name: str
    parallel: int

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        """One decision per observation, in order."""
        ...


@runtime_checkable
class StreamingAgent(Protocol):
    """An agent whose answers of one batch get ready one after the other: its episodes do not wait for the slowest."""

    name: str

    def each(
        self, observations: Sequence[Observation], histories: Sequence[History]
    ) -> AsyncIterator[tuple[int, Decision]]:
        """(number of the observation, its decision), in the order in which they get ready; one per observation."""
        ...


def check_keys(actions: Iterable[Action]) -> None:
    """Raises ImpossibleAction for a name that no desktop knows as a key; some dialects read any."""
    for action in actions:
        for key in (*(action.keys or ()), *(action.modifiers or ())):
            if key_name(key) is None:
                raise ImpossibleAction(f"{action.type}: unknown key {shown(key)}")


def decide(parse: Callable[[str], Response | AgentTurn], text: str) -> Decision:
    """The decision of an answer, read by `PromptBuilder.read_turn` (one action or several), or by `PromptBuilder.read`
    (exactly one); a text that does not parse, or says what cannot be done, is a decision without an action."""
    try:
        read = read_answer(parse, text)
        check_keys(read.actions if isinstance(read, AgentTurn) else [read.action])
    except ImpossibleAction as error:
        return Decision(text, None, refused=str(error))
    except ParseError as error:
        return Decision(text, None, parse_error=str(error))
    if isinstance(read, AgentTurn):
        return Decision(text, read.actions[0], read.thought, further_actions=read.actions[1:])
    return Decision(text, read.action, read.thought)


def with_call(step: Step, call: ToolCall) -> Step:
    """The step with a call as it ended, in the place of the same call as the answer held it."""
    asked = msgspec.structs.replace(call, result=None, error=None)
    calls = list(step.calls)
    if asked in calls:
        calls[calls.index(asked)] = call
    else:
        calls.append(call)
    return msgspec.structs.replace(step, calls=tuple(calls))


def held_after(held: frozenset[str], action: Action) -> frozenset[str]:
    """The keys and buttons that are down after an action, of those that were down before it."""
    button = f"button:{action.button or 'left'}"
    match action.type:
        case ActionType.KEY_DOWN:
            return held | set(action.keys or ())
        case ActionType.KEY_UP:
            return held - set(action.keys or ())
        case ActionType.MOUSE_DOWN:
            return held | {button}
        case ActionType.MOUSE_UP:
            return held - {button}
    return held


def judged(action: Action | None, observation: Observation) -> dict[str, float]:
    """What is known at once of the first action of an answer: against the expert, and against the controls."""
    metrics: dict[str, float] = {}
    if action is not None and action.point is not None and observation.tree is not None:
        metrics["on_control"] = float(points_at_control(observation.tree, action.point))
    expert = observation.expected
    if expert is not None:
        metrics[f"expect_{expert.action.type}"] = 1.0
        metrics["correct"] = float(expert.matches(action))
        if expert.box is not None:
            metrics["in_box"] = float(expert.hit(action))
    return metrics


def step_of(index: int, decision: Decision, observation: Observation) -> Step:
    return Step(
        index=index,
        screenshot=frame_name(index),
        action=decision.action,
        response=decision.response,
        thought=decision.thought,
        parse_error=decision.parse_error,
        refused=decision.refused,
        time=time.time(),
        metrics=judged(decision.action, observation),
        token_ids=None if decision.token_ids is None else list(decision.token_ids),
        logprobs=None if decision.logprobs is None else list(decision.logprobs),
        expected=observation.expected,
        marks=dict(observation.marks),
        further_actions=decision.further_actions,
        calls=decision.calls,
        usage=decision.usage,
        cost=decision.cost,
        raw=decision.raw,
        tree=None if observation.tree is None else tree_name(index),
    )
