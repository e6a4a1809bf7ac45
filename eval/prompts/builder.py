"""The only prompt builder: SFT, RL and evaluation get the same messages from it, byte for byte.

The user turn holds the goal, the actions so far (as they were executed, in the dialect's words) and the screenshots.
It never tells how many steps a task takes. The history can stand in turns of its own instead. A demonstration comes
before everything else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from PIL import Image

from eval.actions import Action, ParseError, Unrepresentable
from eval.actions.dialects.base import AgentTurn, Dialect, Response, read_answer
from eval.actions.geometry import Box, Cells
from eval.config import ConfigError
from eval.desktop import Observation, Task
from eval.episodes.images import AnyImage, open_image
from eval.prompts import marks as som
from eval.prompts.demonstrations import NO_DEMONSTRATION, Demonstration, DemonstrationConfig, Pool, filler
from eval.prompts.tokens import quoted

Message = dict[str, Any]  # {"role", "content": [{"type": "text", "text"} | {"type": "image"}]}
Part = dict[str, str]
Style = Literal["list", "turns"]
Level = Literal["l1", "l2", "l3"]
# level -> the sections of reasoning before an answer's code
LEVELS: Final[dict[Level, tuple[str, ...]]] = {
    "l1": ("Action",),
    "l2": ("Thought", "Action"),
    "l3": ("Observation", "Thought", "Action"),
}


@dataclass(frozen=True)
class PastStep:
    """A past step: the action, and the frame before it.

    action    None: the answer was no action
    image     the frame as the desktop gave it, and `marks` the numbered boxes on it
    thought   why, where the agent (or the human) said it; `response` the whole answer
    further_actions  of the same answer, after `action`
    """

    action: Action | None
    image: AnyImage | None = None
    thought: str | None = None
    response: str | None = None
    marks: Mapping[int, Box] = field(default_factory=dict)
    further_actions: tuple[Action, ...] = ()


class Target(Protocol):
    """What a training target needs of a step; `eval.episodes.Step` is one."""

    @property
    def action(self) -> Action | None: ...

    @property
    def further_actions(self) -> tuple[Action, ...]: ...

    @property
    def thought(self) -> str | None: ...

    @property
    def response(self) -> str | None: ...

    @property
    def marks(self) -> Mapping[int, Box]: ...


@dataclass(frozen=True)
class PromptBuilder:
    """
    system         system prompt; "" leaves the turn out, None takes the dialect's instructions
    history        how many past actions are told, the latest ones
    images         how many screenshots are shown: the current one and the latest images - 1 before it
    thought        whether targets carry the step's reasoning, see PromptConfig
    style, level   of the history, see PromptConfig
    demonstration  how demonstrations are shown and chosen; None: never
    pool           what they are chosen from
    """

    dialect: Dialect
    system: str | None = None
    history: int = 10
    images: int = 1
    thought: bool | Level = False
    style: Style = "list"
    level: Level = "l1"
    demonstration: DemonstrationConfig | None = None
    pool: Pool | None = None

    def __post_init__(self) -> None:
        if self.history < 0 or self.images < 1:
            raise ValueError("history must be 0 or more, and images 1 or more")

    def in_frame(self, frame: Cells) -> PromptBuilder:
        """The same builder, its dialect with coordinates in cells of `frame`: history, targets and answers alike.

        Raises ConfigError for a dialect that has no such form.
        """
        try:
            return dataclasses.replace(self, dialect=self.dialect.in_frame(frame))
        except (Unrepresentable, AttributeError) as error:  # a dialect of one's own may have no such method
            raise ConfigError(f"agent.frame: {error}; allowed with this dialect: normalised") from None

    @property
    def frame(self) -> tuple[int, int] | None:
        """(width, height) of the dialect's coordinates; None: they are fractions of the screen, or marks."""
        cells = getattr(self.dialect, "frame", None)
        return (cells.width, cells.height) if isinstance(cells, Cells) else None

    @property
    def marks(self) -> bool:
        """Whether actions name marks, and screenshots show them."""
        return self.dialect.marks

    def ask(
        self,
        task: Task,
        past: Sequence[PastStep],
        observation: Observation,
        demonstration: Demonstration | None = None,
    ) -> tuple[list[Message], list[Image.Image]]:
        """What an agent is asked at a step of `task`: `messages`, with the demonstration that the rule chooses unless
        one is given. Raises ConfigError where there must be one and is none, BadFrame for a broken image."""
        shown = self.choose(task) if demonstration is None else demonstration
        return self.messages(task.instruction, past, observation, shown)

    def choose(self, task: Task) -> Demonstration:
        """The demonstration of an evaluation's task; NO_DEMONSTRATION where none is wanted. Raises ConfigError."""
        self.check([task])
        config = self.demonstration
        if config is None or self.pool is None:
            return NO_DEMONSTRATION
        return self.pool.choose(task, config.rule, config.seed) or NO_DEMONSTRATION

    def check(self, tasks: Sequence[Task]) -> None:
        """Raises ConfigError when an evaluation of the tasks lacks a demonstration that the configuration asks for."""
        config = self.demonstration
        if config is None or config.rule == "none":
            return
        if self.pool is None:
            raise ConfigError("prompt.demonstration.folder: name the episodes that an evaluation shows, or rule: none")
        for task in tasks:
            if config.required and not self.pool.has(task, config.rule):
                raise ConfigError(
                    f"prompt.demonstration: {config.folder} holds no {config.rule} one for task {task.task_id}; "
                    "required: false would ask without"
                )

    def messages(
        self,
        goal: str,
        past: Sequence[PastStep],
        observation: Observation,
        demonstration: Demonstration = NO_DEMONSTRATION,
    ) -> tuple[list[Message], list[Image.Image]]:
        """Chat messages in Hugging Face form up to the agent's turn, and the images in the order of their places.

        Raises BadFrame for an image that cannot be decoded.
        """
        messages, images = self.layout(goal, past, observation.image, observation.marks, demonstration)
        return messages, [open_image(image) for image in images]

    def layout(
        self,
        goal: str,
        past: Sequence[PastStep],
        image: AnyImage,
        marks: Mapping[int, Box] | None = None,
        demonstration: Demonstration = NO_DEMONSTRATION,
    ) -> tuple[list[Message], list[AnyImage]]:
        """`messages` for a present frame `image`, with nothing opened: images are handed on as they came."""
        system = self.dialect.instructions() if self.system is None else self.system
        chat = _Chat()
        if system:
            chat.text("system", system)
        if demonstration.steps:
            self._demonstrate(chat, demonstration)
        if self.style == "list":
            self._list(chat, goal, past)
        else:
            self._turns(chat, goal, past)
        chat.image(self._seen(image, marks or {}))
        return chat.messages, chat.images

    def _list(self, chat: _Chat, goal: str, past: Sequence[PastStep]) -> None:
        """The actions so far within the user's turn."""
        chat.text("user", f"Goal: {goal}\n")
        start = max(0, len(past) - self.history)
        if start < len(past):
            chat.text("user", "Actions so far:\n")
        for index in range(start, len(past)):
            step = past[index]
            if index >= len(past) - (self.images - 1) and step.image is not None:
                chat.image(self._seen(step.image, step.marks))
                chat.text("user", "\n")
            chat.text("user", f"{index + 1}. {quoted(self._told(step))}\n")

    def _turns(self, chat: _Chat, goal: str, past: Sequence[PastStep]) -> None:
        """OpenCUA's form: each step a turn of the assistant, before it the frame if it is one of the latest."""
        for index in range(max(0, len(past) - self.history), len(past)):
            step = past[index]
            if index >= len(past) - (self.images - 1) and step.image is not None:
                chat.image(self._seen(step.image, step.marks))
            chat.text("assistant", f"# Step {index + 1}:\n{quoted(self._answered(step))}")
            chat.end()
        chat.text("user", f"Goal: {goal}\n")

    def _answered(self, step: PastStep) -> str:
        """A past step in the form of a target, with as much of its reasoning as `level` asks for and it has."""
        if step.action is None:
            return self.written(None)
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
        """A past step's actions as the history tells them."""
        return "; ".join(self.written(action, step.marks) for action in (step.action, *step.further_actions))

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

    def _demonstrate(self, chat: _Chat, shown: Demonstration) -> None:
        """The demonstration block: the task; per step the screen, the action, its result."""
        config = self.demonstration or DemonstrationConfig()
        say = filler if shown.blank else str
        told = shown.steps[: config.steps]
        pictured = _spread(len(told), config.images)
        chat.text("user", f"Demonstration\nTask: {say(shown.task)}\n")
        for index, step in enumerate(told):
            chat.text("user", f"Step {index + 1}\nScreen: ")
            if index in pictured:
                chat.image(self._seen(step.image, {} if shown.blank else step.marks))
            else:
                chat.text("user", f"{step.screen[0]}x{step.screen[1]}")
            chat.text("user", "\n")
            if config.thought and step.thought:
                chat.text("user", f"Thought: {quoted(say(step.thought))}\n")
            chat.text("user", f"Action: {quoted(say(self.written(step.action, step.marks)))}\n")
            if step.result:
                chat.text("user", f"Result: {say(step.result)}\n")
        if len(told) < len(shown.steps):
            chat.text("user", "and so on\n")
        chat.text("user", "End of the demonstration\n")

    def _seen(self, image: AnyImage, marks: Mapping[int, Box]) -> AnyImage:
        return som.marked(image, marks) if self.marks else image

    def _spoken(self, action: Action, marks: Mapping[int, Box]) -> Action:
        """The action as the dialect says it. Raises Unrepresentable where no mark holds its point."""
        return som.to_mark(action, marks) if self.marks else action

    def written(self, action: Action | None, marks: Mapping[int, Box] | None = None) -> str:
        """A past action as the prompt shows it; for an action that the dialect cannot hold, only its type."""
        if action is None:
            return "(no valid action)"
        try:
            return self.dialect.format(self._spoken(action, marks or {}))
        except Unrepresentable:
            return f"({action.type})"

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
                parsed = self.dialect.parse_turn(answer)
            actions = tuple(som.to_point(action, marks or {}) for action in parsed.actions)
            return dataclasses.replace(parsed, actions=actions)

        return read_answer(turn, text)


class _Chat:
    """Collects messages in order; neighbouring texts become one part."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.images: list[AnyImage] = []
        self.open = False

    def _part(self, role: str, part: Part) -> None:
        if not self.open or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": []})
            self.open = True
        content = self.messages[-1]["content"]
        if content and content[-1]["type"] == part["type"] == "text":
            content[-1]["text"] += part["text"]
        else:
            content.append(part)

    def text(self, role: str, text: str) -> None:
        self._part(role, {"type": "text", "text": text})

    def image(self, image: AnyImage) -> None:
        """An image of the user's turn."""
        self._part("user", {"type": "image"})
        self.images.append(image)

    def end(self) -> None:
        """Ends the turn: the next part starts a new turn, even with the same role."""
        self.open = False


def _spread(count: int, wanted: int) -> set[int]:
    """`wanted` of `count` indices: the first, and the others spread evenly over the rest."""
    if wanted >= count:
        return set(range(count))
    if wanted < 2:
        return set(range(wanted))
    return {round(index * (count - 1) / (wanted - 1)) for index in range(wanted)}
