"""What a dialect does: text to Action and back, strictly."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Final, Protocol, TypeVar

from eval.actions import Action, ParseError, Unrepresentable
from eval.actions.dialects.calls import CodeCall
from eval.actions.geometry import Cells, PublishedPixels

T = TypeVar("T")
MAX_ANSWER: Final = 200_000  # characters of an answer, its reasoning among them
# heads past turns, and OpenCUA's answers, as their prompts have it
STEP: Final = re.compile(r"\s*# Step:? ?\d{1,6}:?[ \t]*\n")


def read_answer(read: Callable[[str], T], text: str) -> T:
    """What `read` makes of a model's answer. Raises ParseError, and never anything else.

    The only place through which answers of models reach a dialect: an answer is any text, so whatever goes wrong in
    reading one is that answer's failure and must not end an evaluation or a training. The past turns of our own prompts
    begin with a line `# Step n:`, and OpenCUA's own system prompt asks for `# Step: n`; an answer that begins so is
    read without that line where it cannot be read with it.
    """
    if len(text) > MAX_ANSWER:
        raise ParseError(f"more than {MAX_ANSWER} characters")
    try:
        return _read(read, text)
    except ParseError:
        if (heading := STEP.match(text)) is None:
            raise
        return _read(read, text[heading.end() :])


def _read(read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ParseError:
        raise
    except Exception as error:
        raise ParseError(f"the dialect failed: {type(error).__name__}: {str(error)[:200]}") from error


D = TypeVar("D")


def scored_as_published(dialect: D) -> D:
    """The dialect with its coordinates where published scorers take them (`eval.actions.geometry.PublishedPixels`)."""
    frame = getattr(dialect, "frame", None)
    if not isinstance(frame, Cells) or not is_dataclass(dialect) or isinstance(dialect, type):
        return dialect
    return replace(dialect, frame=PublishedPixels(frame.width, frame.height))


@dataclass(frozen=True)
class Response:
    """One answer of an agent: its action, and its thought when it gave one."""

    thought: str | None
    action: Action


@dataclass(frozen=True)
class AgentTurn:
    """One answer of an agent with all of its actions, at least one, in their order.

    repairs  what a lenient reader repaired, in words; () for an answer that a strict one reads, too
    """

    thought: str | None
    actions: tuple[Action, ...]
    repairs: tuple[str, ...] = ()


class Dialect(Protocol):
    """Formatting keeps everything or raises Unrepresentable; parsing yields exactly one action or raises ParseError.

    A class that inherits from this one must write five methods: format, parse, format_response, parse_response and
    instructions. Code that uses a dialect asks it what it can do, and never looks at its name.
    """

    @property
    def marks(self) -> bool:
        """Whether actions name the numbered marks of a screenshot, and coordinates are not used."""
        return False

    @property
    def reasoning(self) -> tuple[str, ...]:
        """The sections of reasoning that an answer can hold before its action, in their order."""
        return ("Thought",)

    @property
    def control_tokens(self) -> frozenset[str]:
        """The model's control tokens that belong to an answer, say `<|box_start|>`. All others are literal text."""
        return frozenset()

    def format(self, action: Action) -> str:
        """The action alone. Raises Unrepresentable."""
        ...

    def parse(self, text: str) -> Action:
        """The inverse. Raises ParseError for anything but exactly one action."""
        ...

    def format_response(self, action: Action, thought: str | None = None) -> str:
        """A whole answer. Raises Unrepresentable for an action or a thought that would not read back as it was."""
        ...

    def parse_response(self, text: str) -> Response:
        """The inverse. Raises ParseError."""
        ...

    def parse_turn(self, text: str, *, lenient: bool = False) -> AgentTurn:
        """An answer that may hold several actions. Raises ParseError.

        lenient  repairs what the dialect knows to repair, and says so in `repairs`; nothing else is guessed
        """
        response = self.parse_response(text)
        return AgentTurn(response.thought, (response.action,))

    def format_turn(self, actions: Sequence[Action], thought: str | None = None) -> str:
        """The inverse. Raises Unrepresentable, also for several actions where the dialect holds one."""
        if len(actions) != 1:
            raise Unrepresentable(f"an answer of this dialect holds one action, not {len(actions)}")
        return self.format_response(actions[0], thought)

    def instructions(self) -> str:
        """How to answer, for a system prompt."""
        ...

    def in_frame(self, frame: Cells) -> Dialect:
        """The same dialect with coordinates in cells of `frame` (pixels of an image) instead of fractions.

        Raises Unrepresentable where the dialect has no such form.
        """
        raise Unrepresentable("this dialect has no form with pixels")

    def without_marks(self) -> Dialect:
        """The same dialect with coordinates, for agents that see no marks."""
        return self

    def sections(self, text: str) -> dict[str, str]:
        """The sections of reasoning in a whole answer, in their order; {} for an answer that has none to tell apart."""
        return {}

    def format_sections(self, action: Action, sections: Mapping[str, str]) -> str:
        """A whole answer with these sections of reasoning before its action.

        Raises Unrepresentable for sections that the dialect does not have, or that would not read back as they were.
        """
        if not set(sections) <= {"Thought"}:
            raise Unrepresentable(f"this dialect has no section {', '.join(sorted(set(sections) - {'Thought'}))}")
        return self.format_response(action, sections.get("Thought"))

    def calls(self, text: str) -> list[CodeCall] | None:
        """The calls of an answer that is PyAutoGUI code; None where a dialect writes no such code.

        Raises ParseError for code that is not understood.
        """
        return None
