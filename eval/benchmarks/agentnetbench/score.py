"""The scoring rules of AgentNetBench, in two revisions.

v1  as published with the benchmark: a scroll needs the right type only, keys are compared as sets, extra predicted
    actions cost nothing
v2  a later revision: a scroll needs the direction and earns min/max of the amounts, keys are compared in order, and
    everything is multiplied by |ground truth| / |predicted| when more is predicted than asked for

Both compare actions by position after merging a write with the enter that follows it. Left out are the faults of the
published code: the ground truth is never changed by scoring, spellings of one type are one type, key names are made
alike on both sides, and an answer that does not parse is a 0 in every score that its step belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from eval.actions import Action, ParseError, Unrepresentable
from eval.actions.dialects.base import Dialect, read_answer
from eval.actions.dialects.calls import CLICKS, CodeCall, calls, shown
from eval.actions.dialects.pyautogui import PyAutoGui, click_type
from eval.actions.geometry import distance_score, inside
from eval.benchmarks.agentnetbench.data import KEYS, POINTED, SCROLLS, Act, BenchStep, canonical_keys, canonical_type

Version = Literal["v1", "v2"]
VERSIONS: Final[tuple[Version, ...]] = ("v1", "v2")

SIMILAR: Final = 0.8  # text similarity that counts as the same

GROUPS: Final = {
    **dict.fromkeys([*POINTED, *SCROLLS], "coordinate"),
    **dict.fromkeys(["write", *KEYS], "content"),
    "terminate": "function",
}


@dataclass(frozen=True)
class StepScore:
    """`total` in [0, 1]; `types`: the mean over the ground truth's actions of each type."""

    total: float
    types: dict[str, float] = field(default_factory=dict)


def levenshtein(left: str, right: str) -> int:
    """The number of single-character edits between two strings."""
    if len(left) < len(right):
        left, right = right, left
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return row[-1]


def text_score(truth: str, predicted: str) -> float:
    """Similarity without regard to case and outer blanks; SIMILAR and above counts as 1, less in proportion."""
    a, b = truth.strip().casefold(), predicted.strip().casefold()
    longest = max(len(a), len(b))
    similarity = 1.0 if longest == 0 else 1.0 - levenshtein(a, b) / longest
    return 1.0 if similarity >= SIMILAR else similarity / SIMILAR


def scroll_score(truth: Act, predicted: Act, version: Version) -> float:
    """v1: the type is enough. v2: the direction, times min/max of the amounts where the truth has an amount."""
    if version == "v1" or truth.amount is None:
        return 1.0
    if not truth.amount or not predicted.amount:
        return 1.0 if truth.amount == predicted.amount else 0.0
    if (truth.amount > 0) != (predicted.amount > 0):
        return 0.0
    if truth.text:  # only the direction is known
        return 1.0
    small, large = sorted((abs(truth.amount), abs(predicted.amount)))
    return small / large


def act_score(truth: Act, predicted: Act, version: Version) -> float:
    """One action against one action, in [0, 1]."""
    if truth.type != predicted.type:
        return 0.0
    if truth.type in POINTED:
        if predicted.point is None or truth.point is None:
            return 0.0
        if any(inside(predicted.point, box) for box in truth.boxes):
            return 1.0
        return distance_score(math.dist(truth.point, predicted.point))
    if truth.type == "write":
        return text_score(truth.text, predicted.text)
    if truth.type in KEYS:
        same = truth.keys == predicted.keys if version == "v2" else set(truth.keys) == set(predicted.keys)
        return float(same)
    if truth.type in SCROLLS:
        return scroll_score(truth, predicted, version)
    if truth.type == "terminate":
        return float(truth.status == predicted.status)
    return 1.0  # a type without parameters, such as wait


def merge_enter(acts: Sequence[Act]) -> list[Act]:
    """A write followed by enter is one write that ends with a newline."""
    merged: list[Act] = []
    for act in acts:
        enter = act.type in KEYS and act.keys == ("enter",)
        if enter and merged and merged[-1].type == "write" and not merged[-1].text.endswith("\n"):
            merged[-1] = replace(merged[-1], text=merged[-1].text + "\n")
        else:
            merged.append(act)
    return merged


def option_score(truth: Sequence[Act], predicted: Sequence[Act], version: Version) -> StepScore:
    """Predicted actions against one way to do the step."""
    wanted, given = merge_enter(truth), merge_enter(predicted)
    types = [act.type for act in wanted]
    zero = StepScore(0.0, dict.fromkeys(types, 0.0))
    if not wanted or not given or given[0].type not in types:
        return zero
    if wanted[0].type == "terminate":
        wanted = wanted[:1]  # nothing comes after the end
    penalty = len(wanted) / len(given) if version == "v2" and len(given) > len(wanted) else 1.0
    scores: dict[str, list[float]] = {}
    for index, act in enumerate(wanted):
        score = act_score(act, given[index], version) if index < len(given) else 0.0
        scores.setdefault(act.type, []).append(score)
    means = {kind: penalty * sum(values) / len(values) for kind, values in scores.items()}
    return StepScore(sum(means.values()) / len(means), means)


def step_score(step: BenchStep, predicted: Sequence[Act] | None, version: Version) -> StepScore:
    """The best over the step's alternatives, the ground truth first among equals; None: the answer did not parse."""
    scores = [option_score(option, predicted or (), version) for option in step.options]
    return max(scores, key=lambda score: score.total)


def predicted_acts(response: str, dialect: Dialect) -> list[Act]:
    """The actions of an answer, which may hold several. Raises ParseError.

    An action that the benchmark has no type for becomes one that no ground truth has.
    """

    def acts(answer: str) -> list[Act]:
        predicted = dialect.calls(answer)
        if predicted is None:
            if not hasattr(dialect, "parse_turn"):  # one of a user's own that does not inherit
                return _acts(dialect.parse_response(answer).action)
            return [act for action in dialect.parse_turn(answer).actions for act in _acts(action)]
        return [_predicted(call) for call in predicted]

    return read_answer(acts, response)


def _acts(action: Action) -> list[Act]:
    try:
        return [_predicted(call) for call in calls(EXACT.format(action))]
    except Unrepresentable:
        return [Act(f"other {action.type}")]


EXACT: Final = PyAutoGui(decimals=400)  # more than any float has


def _predicted(call: CodeCall) -> Act:
    kind = canonical_type(call.name)
    if call.name in CLICKS:
        try:
            kind = canonical_type(click_type(call))
        except Unrepresentable:
            return Act(f"other {call.name}")
    arguments = call.arguments
    if call.point is not None and not all(0 <= value <= 1 for value in call.point):
        raise ParseError(f"a point must lie within 0 to 1, not at {shown(call.point)}: are these pixels?")
    if kind in POINTED:
        return Act(kind, point=call.point)
    if kind in SCROLLS:
        amount = arguments.get("clicks")
        return Act(kind, amount=float(amount) if isinstance(amount, int | float) else None)
    if kind == "write":
        return Act(kind, text=str(arguments.get("message", "")))
    if kind in KEYS:
        times = arguments.get("presses", 1)
        if not isinstance(times, int) or not 1 <= times <= 1000:
            raise ParseError(f"presses must be a whole number from 1 to 1000, not {shown(times)}")
        return Act(kind, keys=canonical_keys(arguments["keys"] * times))
    if kind == "terminate":
        return Act(kind, status=str(arguments.get("status", "")))
    return Act(kind)
