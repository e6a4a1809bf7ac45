"""What a reward function sees, and what it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eval.actions import Action, ParseError
from eval.actions.dialects.base import Dialect
from eval.desktop import Expected
from eval.episodes import Step
from eval.prompts import Message

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class SampledAnswer:
    """One sampled answer to one prompt.

    messages   the prompt: chat messages up to the assistant's turn; `images` in the order of their places
    text       the answer, without special tokens; `tokens` sampled ones, the end token among them
    truncated  the answer was cut off at the longest allowed length
    parsed     the text read as an action, or why it is none; of several actions the first
    further    the actions of the answer after that one, in their order
    expected   what should have been done: the environment's expert's action and box, or else the recorded action
    step       of the episode that the prompt was made of; it has the marks
    where      names the sample in messages
    """

    messages: Sequence[Message]
    images: Sequence[Image.Image]
    text: str
    tokens: int
    truncated: bool
    parsed: Action | ParseError
    expected: Expected | None
    step: Step | None
    dialect: Dialect
    where: str
    further: tuple[Action, ...] = ()

    @property
    def action(self) -> Action | None:
        """The action, or None for a text that is none."""
        return self.parsed if isinstance(self.parsed, Action) else None

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions of the answer, in their order."""
        return () if self.action is None else (self.action, *self.further)

    @property
    def wanted(self) -> tuple[Expected, ...]:
        """What should have been done, one for each action: `expected`; where that is a recorded action, those of the
        same recorded answer after it as well."""
        if self.expected is None:
            return ()
        recorded = self.step is not None and self.step.expected is None
        further = self.step.further_actions if self.step is not None and recorded else ()
        return (self.expected, *map(Expected, further))

    @property
    def share(self) -> float:
        """What actions beyond those wanted leave of a score: wanted / given, 1 for no more than wanted.

        Source: the later revision of AgentNetBench's scoring (eval.benchmarks.agentnetbench.score, v2).
        """
        wanted, given = max(1, len(self.wanted)), len(self.actions)
        return wanted / given if given > wanted else 1.0


class RewardFunction(Protocol):
    """One finite number for each attempt, in order; None for one that could not be judged.

    A None takes the attempt out of its group: it changes nothing. An eval.desktop.InfraError does so for all attempts
    of the call. Any other exception ends the training, and so does NaN, an infinite value or a wrong count.
    A function of one's own has this signature, and its `args` as keyword arguments:

        def brief(attempts: Sequence[SampledAnswer], *, limit: int = 20) -> list[float | None]: ...
    """

    def __call__(self, attempts: Sequence[SampledAnswer]) -> Sequence[float | None]: ...
