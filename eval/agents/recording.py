"""How an answer stands in an episode: the step that it becomes, and what of it is judged at once."""

from __future__ import annotations

import time

from eval.accessibility.visible import points_at_control
from eval.actions import Action
from eval.agents.base import Decision
from eval.desktop import Observation
from eval.episodes import Step, ToolCall, frame_name, tree_name


def open_call(known: ToolCall, call: ToolCall) -> bool:
    """Whether `known` is the same call, without an end yet."""
    same = (known.id, known.name, known.arguments) == (call.id, call.name, call.arguments)
    return same and known.result is None and known.error is None


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
