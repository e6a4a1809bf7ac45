"""The built-in rewards. Their fields are the `args` of a configuration.

`missing` names what a prompt lacks to be judged; it is called before anything is sampled.

An answer with several actions (a dialect may hold them) is judged as AgentNetBench's later revision judges one:
`match` and `agentnetbench` compare by position and take the mean over the wanted actions; `action_type`, `inside_box`
and `distance` look at the first action, which is the one that the screenshot shows the target of; and all five are
multiplied by wanted / given where more was done than wanted. So nothing is gained by adding actions to a right one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from eval.actions import ParseError, Unrepresentable
from eval.actions.dialects.registry import CONTROL_TOKENS
from eval.actions.geometry import Box, Point
from eval.benchmarks.agentnetbench.data import BenchStep
from eval.benchmarks.agentnetbench.score import EXACT, predicted_acts, step_score
from eval.config import Config, ConfigError
from eval.desktop import Expected
from eval.prompts import Message
from eval.prompts.tokens import CONTROL, quoted
from training.rewards.base import SampledAnswer

Positive = Annotated[float, msgspec.Meta(gt=0)]


class Builtin(Config, frozen=True):
    """Base class of the built-in rewards. Subclasses judge one attempt, or override `__call__`.

    bounded  whether its values lie in [0, 1]; the interval of its mean then does too
    """

    bounded: ClassVar[bool] = True

    def __call__(self, attempts: Sequence[SampledAnswer]) -> list[float]:
        return [self.one(attempt) for attempt in attempts]

    def one(self, attempt: SampledAnswer) -> float:
        raise NotImplementedError

    def check(self) -> None:
        """Raises ConfigError for invalid arguments."""

    def missing(self, expected: Expected | None) -> str | None:
        """What a prompt with this expectation lacks, or None."""
        return None


class Format(Builtin, frozen=True):
    """1 for a text that is a valid answer: one action, or several where the dialect holds them; else 0."""

    def one(self, attempt: SampledAnswer) -> float:
        return float(attempt.action is not None)


class _Judging(Builtin, frozen=True):
    def missing(self, expected: Expected | None) -> str | None:
        return "an expected action" if expected is None else None


class ActionTypeIs(_Judging, frozen=True):
    """1 for an action of the expected type, else 0."""

    def one(self, attempt: SampledAnswer) -> float:
        assert attempt.expected is not None
        same = attempt.action is not None and attempt.action.type is attempt.expected.action.type
        return attempt.share * same


class Match(_Judging, frozen=True):
    """1 for the expected action with its point in the box, else 0. Without a box, as on recordings of a person, 1 up to
    .01 x sqrt 2 from the expected point and falling after, by AgentNetBench's rule. It judges every step."""

    def one(self, attempt: SampledAnswer) -> float:
        wanted = attempt.wanted
        earned = [each.credit(action) for each, action in zip(wanted, attempt.actions, strict=False)]
        return attempt.share * sum(earned) / len(wanted)


class InsideBox(Builtin, frozen=True):
    """1 for a point inside the expected box, whatever the type of the action, else 0.

    Only for steps whose box is known: those of a scripted expert, not a person's recordings.
    """

    def one(self, attempt: SampledAnswer) -> float:
        assert attempt.expected is not None
        return attempt.share * attempt.expected.hit(attempt.action)

    def missing(self, expected: Expected | None) -> str | None:
        if expected is not None and expected.box is not None:
            return None
        return "an expected box, which recordings of a person do not have: use match"


class Distance(Builtin, frozen=True):
    """exp(-d / scale), d the distance of the point to the box's nearest edge (0 inside), without a box to the expected
    point; in fractions of the screen's width and height. 0 for an answer without a point.

    scale  the distance at which 37 % are left
    """

    scale: Positive = 0.1

    def one(self, attempt: SampledAnswer) -> float:
        assert attempt.expected is not None
        if attempt.action is None or (point := attempt.action.point) is None:
            return 0.0
        return attempt.share * math.exp(-_distance(point, attempt.expected) / self.scale)

    def missing(self, expected: Expected | None) -> str | None:
        located = expected is not None and (expected.box is not None or expected.action.point is not None)
        return None if located else "an expected point or box"


def _distance(point: Point, expected: Expected) -> float:
    target = expected.action.point
    left, top, width, height = expected.box if expected.box is not None else _at(target)
    dx = max(left - point[0], 0.0, point[0] - left - width)
    dy = max(top - point[1], 0.0, point[1] - top - height)
    return math.hypot(dx, dy)


def _at(point: Point | None) -> Box:
    assert point is not None
    return (*point, 0.0, 0.0)


class AgentNetBench(_Judging, frozen=True):
    """The step score of eval.benchmarks.agentnetbench.score, the expected actions being the only right ones."""

    version: Literal["v1", "v2"] = "v2"

    def one(self, attempt: SampledAnswer) -> float:
        assert attempt.expected is not None
        boxes = () if attempt.expected.box is None else (attempt.expected.box,)
        truth = predicted_acts(EXACT.format_turn([each.action for each in attempt.wanted]), EXACT)
        if len(truth) == 1:
            truth = [replace(truth[0], boxes=boxes)]
        step = BenchStep(number=0, image=Path(), code="", thought=None, options=(tuple(truth),))
        try:
            given = predicted_acts(attempt.text, attempt.dialect)
        except ParseError:
            given = None
        return step_score(step, given, self.version).total

    def missing(self, expected: Expected | None) -> str | None:
        if expected is None:
            return "an expected action"
        try:
            EXACT.format_response(expected.action)
        except Unrepresentable as error:
            return f"an expected action that the benchmark has ({error})"
        return None


class Length(Builtin, frozen=True):
    """DAPO's soft punishment of overlong answers: 0 up to limit - margin tokens, falling in a line to -1 at `limit`.

    Source: Q. Yu et al., DAPO (2025), section 3.4.
    """

    bounded: ClassVar[bool] = False

    limit: Annotated[int, msgspec.Meta(ge=1)]
    margin: Annotated[int, msgspec.Meta(ge=1)]

    def check(self) -> None:
        if self.margin > self.limit:
            raise ConfigError(f"margin must be at most limit ({self.limit}), not {self.margin}")

    def one(self, attempt: SampledAnswer) -> float:
        over = attempt.tokens - (self.limit - self.margin)
        return -min(1.0, max(0.0, over / self.margin))


class RewardModelScore(Builtin, frozen=True):
    """The score of a model that training.reward made: any number, higher is better.

    path  its folder
    """

    bounded: ClassVar[bool] = False

    path: str

    def check(self) -> None:
        if not Path(self.path).is_dir():
            raise ConfigError(f"there is no folder {self.path}")
        from training.reward.model import ABOUT, read_about

        if (Path(self.path) / ABOUT).is_file() and "prompt" in read_about(Path(self.path)):
            raise ConfigError(
                f"path: {self.path} judges whole episodes, not answers; training.rl takes it: reward_model"
            )

    def __call__(self, attempts: Sequence[SampledAnswer]) -> list[float]:
        chats: list[list[Message]] = []
        for attempt in attempts:
            # of others, which an answer spelt out in ordinary tokens; as in the pairs that the model learned from
            text = quoted(attempt.text, CONTROL_TOKENS, forms=[CONTROL])
            chats.append([*attempt.messages, {"role": "assistant", "content": [{"type": "text", "text": text}]}])
        scores = _reward_model(self.path).score(chats, [list(attempt.images) for attempt in attempts])
        return [float(value) for value in scores]


@lru_cache(maxsize=4)
def _reward_model(path: str) -> Any:
    from training.reward.model import RewardModel

    return RewardModel.load(path)


BUILTINS: Final[dict[str, type[Builtin]]] = {
    "format": Format,
    "action_type": ActionTypeIs,
    "match": Match,
    "inside_box": InsideBox,
    "distance": Distance,
    "agentnetbench": AgentNetBench,
    "length": Length,
    "reward_model": RewardModelScore,
}
