"""How single steps stand in prompts and answers, in the words of a dialect."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, Literal

from eval.actions import Action, ParseError, Unrepresentable
from eval.actions.dialects.base import AgentTurn, Dialect, Response, read_answer
from eval.actions.geometry import Box
from eval.prompts import marks as som
from eval.prompts.messages import PastStep, Target, called, not_done

Style = Literal["list", "turns", "opencua", "chat"]
Level = Literal["l1", "l2", "l3"]
# level -> the sections of reasoning before an answer's code
LEVELS: Final[dict[Level, tuple[str, ...]]] = {
    "l1": ("Action",),
    "l2": ("Thought", "Action"),
    "l3": ("Observation", "Thought", "Action"),
}


def control_tokens(dialect: Dialect) -> frozenset[str]:
    """The control tokens of the dialect's answers; one of a user's own that does not inherit has none."""
    return getattr(dialect, "control_tokens", frozenset())


class StepWording:
    """dialect, thought, style, level, lenient: as in PromptBuilder."""

    dialect: Dialect
    thought: bool | Level
    style: Style
    level: Level
    lenient: bool

    @property
    def marks(self) -> bool:
        """Whether actions name marks, and screenshots show them."""
        return self.dialect.marks

    def target(self, step: Target) -> str:
        """The assistant's turn for a step that has an action. Raises Unrepresentable."""
        if step.action is None:
            raise ValueError("a step without an action cannot be a target")
        if step.further_actions:
            return self._turn(step, ((step.thought or "").strip() or None) if self.thought else None)
        reasons = self._reasons(step) if self.thought else {}
        return self.dialect.format_sections(self._spoken(step.action, step.marks), reasons)

    def as_written(self, action: Action, marks: Mapping[int, Box] | None = None) -> Action:
        """The action as it reads after it was written: its coordinates rounded, or at the middle of its mark.

        An action that the dialect cannot hold comes back as it is.
        """
        try:
            return self.read(self.dialect.format_response(self._spoken(action, marks or {})), marks).action
        except (Unrepresentable, ParseError):
            return action

    def read(self, text: str, marks: Mapping[int, Box] | None = None) -> Response:
        """An answer to a prompt, its action at the point of the mark that it names. Raises ParseError."""

        def response(answer: str) -> Response:
            parsed = self.dialect.parse_response(answer)
            return dataclasses.replace(parsed, action=som.to_point(parsed.action, marks or {}))

        return read_answer(response, text)

    def read_turn(self, text: str, marks: Mapping[int, Box] | None = None) -> AgentTurn:
        """An answer that may hold several actions, each at the point of the mark that it names. Raises ParseError."""

        def turn(answer: str) -> AgentTurn:
            if not hasattr(self.dialect, "parse_turn"):  # one of a user's own that does not inherit
                response = self.dialect.parse_response(answer)
                parsed = AgentTurn(response.thought, (response.action,))
            else:
                parsed = self.dialect.parse_turn(answer, lenient=self.lenient)
            actions = tuple(som.to_point(action, marks or {}) for action in parsed.actions)
            return dataclasses.replace(parsed, actions=actions)

        return read_answer(turn, text)

    def written(self, action: Action | None, marks: Mapping[int, Box] | None = None) -> str:
        """A past action as the prompt shows it; for an action that the dialect cannot hold, only its type."""
        if action is None:
            return "(no valid action)"
        try:
            return self.dialect.format(self._spoken(action, marks or {}))
        except Unrepresentable:
            return f"({action.type})"

    def as_taught(self, step: PastStep) -> PastStep:
        """The step as the history of a training sample tells it: an answer that was recorded with more or less
        reasoning than a target carries is told in the form of a target."""
        if self.style != "chat" or step.action is None or not step.response:
            return step
        try:
            same = self._reasoning(step.response, step.marks) == self._reasoning(self.target(step), step.marks)
        except (Unrepresentable, ParseError):
            return step
        return step if same else dataclasses.replace(step, response=None)

    def _said(self, step: PastStep) -> str:
        """A past step's answer as it was given; where it was not kept, or does not read as what was done (another
        dialect or frame), in the form of a target."""
        done = [] if step.action is None else [step.action, *step.further_actions]
        if step.response and self._read(step) == done:
            return step.response
        try:
            return self.target(step) if done else self.written(None)
        except Unrepresentable:
            return self._told(step)

    def _reasoning(self, answer: str, marks: Mapping[int, Box]) -> tuple[str | None, dict[str, str]]:
        """An answer's thought, and its sections where the dialect has several. Raises ParseError."""
        return self.read_turn(answer, marks).thought, self._sections(answer)

    def _read(self, step: PastStep) -> list[Action]:
        """The actions that a past step's answer holds; [] where it cannot be read."""
        try:
            return list(self.read_turn(step.response or "", step.marks).actions)
        except ParseError:
            return []

    def _came(self, step: PastStep) -> str:
        """What an agent has to know of its last answer besides the next frame; "" for nothing."""
        told = self._calls(step)
        if step.undone is not None:
            told.append(not_done(step.undone))
        return "; ".join(told) or (self.written(None) if step.action is None else "")

    def _answered(self, step: PastStep) -> str:
        """A past step in the form of a target, with as much of its reasoning as `level` asks for and it has."""
        if step.action is None:
            return self._told(step)
        if step.further_actions:
            try:
                return self._turn(step, None)
            except Unrepresentable:
                return self._told(step)
        try:
            action = self._spoken(step.action, step.marks)
            plain = self.dialect.format_response(action)
        except Unrepresentable:
            return self.written(step.action, step.marks)
        kept = {name: body for name, body in self._reasons(step).items() if name in LEVELS[self.level]}
        try:
            return self.dialect.format_sections(action, kept)
        except Unrepresentable:
            return plain

    def _told(self, step: PastStep) -> str:
        """A past step's actions as the history tells them, the ends of its calls of tools, and what was not done."""
        calls = self._calls(step)
        if step.undone is not None:
            calls.append(not_done(step.undone))
        actions = () if calls and step.action is None else (step.action, *step.further_actions)
        return "; ".join([*(self.written(action, step.marks) for action in actions), *calls])

    def _reasoned(self, step: PastStep, index: int) -> str:
        """A past step's reasoning up to `level`; where its answer has none, what was done in its place."""
        found = self._sections(step.response or "")
        kept = [(name, found[name]) for name in LEVELS[self.level] if name in found] or [("Action", self._told(step))]
        return f"# Step {index + 1}:\n" + "\n".join(f"## {name}:\n{body}\n" for name, body in kept)

    def _calls(self, step: PastStep) -> list[str]:
        """A past step's calls of tools that ended, each with its result."""
        return [called(call) for call in step.calls if call.result is not None or call.error is not None]

    def _turn(self, step: Target | PastStep, thought: str | None) -> str:
        """A whole answer with several actions. Raises Unrepresentable."""
        assert step.action is not None
        spoken = [self._spoken(action, step.marks) for action in (step.action, *step.further_actions)]
        return self.dialect.format_turn(spoken, thought)

    def _reasons(self, step: Target | PastStep) -> dict[str, str]:
        """The sections of a step's reasoning, in their order, as targets hold them: one thought; or, with a level as
        `thought`, the sections of the whole answer up to that level."""
        if isinstance(self.thought, str) and (recorded := self._sections(step.response or "")):
            return {name: recorded[name] for name in LEVELS[self.thought] if name in recorded}
        thought = (step.thought or "").strip()
        return {"Thought": thought} if thought else {}

    def _sections(self, answer: str) -> dict[str, str]:
        """The sections of a recorded answer; {} for one that cannot be read."""
        try:
            return read_answer(self.dialect.sections, answer)
        except ParseError:
            return {}

    def _spoken(self, action: Action, marks: Mapping[int, Box]) -> Action:
        """The action as the dialect says it. Raises Unrepresentable where no mark holds its point, and for a text that
        spells a control token of the dialect's own: it would be read as one."""
        if token := next((token for token in control_tokens(self.dialect) if token in (action.text or "")), None):
            raise Unrepresentable(f"the text holds {token}, which is a control token of this dialect's answers")
        return som.to_mark(action, marks) if self.marks else action
