"""The only prompt builder: SFT, RL and evaluation get the same messages from it, byte for byte.

The user turn holds the goal, the actions so far (as they were executed, in the dialect's words) and the screenshots.
It never tells how many steps a task takes. The history can stand in turns of its own instead. A demonstration comes
before everything else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from PIL import Image

from eval.accessibility.marks import marks_of
from eval.accessibility.told import tell
from eval.accessibility.tree import Tree
from eval.actions import Action, ParseError, Unrepresentable
from eval.actions.dialects.base import AgentTurn, Dialect, Response, read_answer
from eval.actions.geometry import Box, Cells, Point
from eval.config import ConfigError
from eval.desktop import Observation, Task
from eval.episodes.images import AnyImage, open_image
from eval.prompts import marks as som
from eval.prompts.demonstrations import NO_DEMONSTRATION, Demonstration, DemonstrationConfig, Pool, filler
from eval.prompts.messages import Message, PastStep, PromptMessages, Target, called
from eval.prompts.tokens import quoted

Style = Literal["list", "turns", "opencua", "chat"]
GOAL: Final = "Goal: {goal}\n"
Level = Literal["l1", "l2", "l3"]
Shown = Literal["screenshot", "tree", "both", "som"]
# level -> the sections of reasoning before an answer's code
LEVELS: Final[dict[Level, tuple[str, ...]]] = {
    "l1": ("Action",),
    "l2": ("Thought", "Action"),
    "l3": ("Observation", "Thought", "Action"),
}


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
    goal           how the task is told, see PromptConfig
    observation, tree_tokens  what of a screen is shown, see PromptConfig
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
    observation: Shown = "screenshot"
    tree_tokens: int = 2000
    goal: str = GOAL

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
    def pictures(self) -> int:
        """How many screenshots are shown: none where the tree stands in their place."""
        return 0 if self.observation == "tree" else self.images

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
        shown = (goal, past, observation.image, observation.marks, demonstration, observation.tree)
        messages, images = self.layout(*shown)
        return messages, [open_image(image) for image in images]

    def layout(
        self,
        goal: str,
        past: Sequence[PastStep],
        image: AnyImage,
        marks: Mapping[int, Box] | None = None,
        demonstration: Demonstration = NO_DEMONSTRATION,
        tree: Tree | None = None,
    ) -> tuple[list[Message], list[AnyImage]]:
        """`messages` for a present frame `image`, with nothing opened: images are handed on as they came.

        Raises ConfigError where the prompt shows a tree and there is none."""
        system = self.dialect.instructions() if self.system is None else self.system
        chat = PromptMessages()
        if system:
            chat.text("system", system)
        if demonstration.steps or demonstration.failed is not None:
            self._demonstrate(chat, demonstration)
        if self.style == "opencua":
            return self._opencua(chat, goal, past, self._seen(image, marks or {}))
        if self.style == "list":
            self._list(chat, goal, past)
        elif self.style == "chat":
            self._chat(chat, goal, past)
        else:
            self._turns(chat, goal, past)
        if self.observation != "screenshot":
            self._describe(chat, tree, marks or {})
        if self.pictures:
            chat.image(self._seen(image, marks or {}))
        return chat.messages, chat.images

    def told_tree(self, tree: Tree) -> str:
        """A screen's accessibility tree as a prompt tells it, a line for each element."""
        return tell(tree, self.tree_tokens, self._place)

    def _describe(self, chat: PromptMessages, tree: Tree | None, marks: Mapping[int, Box]) -> None:
        """The present screen's tree as text. With marks, elements are told with their numbers, else with their places
        as the dialect writes places."""
        if tree is None:
            if self.observation == "som":
                return  # marks that no program told: there is nothing to say about them
            raise ConfigError(
                f"prompt.observation: {self.observation} needs accessibility trees, and there are none here; allowed: "
                "screenshot"
            )
        if self.observation == "som" and not set(marks.values()) & set(marks_of(tree).values()):
            return  # a grounder's marks: the tree knows none of their numbers
        text = tell(tree, self.tree_tokens, self._place, marks if self.marks else None)
        chat.text("user", f"Screen:\n{quoted(text)}")

    def _place(self, point: Point) -> str:
        cells = getattr(self.dialect, "frame", None)
        if isinstance(cells, Cells):
            x, y = cells.from_norm(*point)
            return f"{x}, {y}"
        return f"{point[0]:.4f}, {point[1]:.4f}"

    def _list(self, chat: PromptMessages, goal: str, past: Sequence[PastStep]) -> None:
        """The actions so far within the user's turn."""
        chat.text("user", self.asked(goal))
        start = max(0, len(past) - self.history)
        if start < len(past):
            chat.text("user", "Actions so far:\n")
        for index in range(start, len(past)):
            step = past[index]
            if index > len(past) - self.pictures and step.image is not None:
                chat.image(self._seen(step.image, step.marks))
                chat.text("user", "\n")
            chat.text("user", f"{index + 1}. {quoted(self._told(step))}\n")

    def _turns(self, chat: PromptMessages, goal: str, past: Sequence[PastStep]) -> None:
        """OpenCUA's form: each step a turn of the assistant, before it the frame if it is one of the latest."""
        for index in range(max(0, len(past) - self.history), len(past)):
            step = past[index]
            if index > len(past) - self.pictures and step.image is not None:
                chat.image(self._seen(step.image, step.marks))
            chat.text("assistant", f"# Step {index + 1}:\n{quoted(self._answered(step))}")
            chat.end()
        chat.text("user", self.asked(goal))

    def _chat(self, chat: PromptMessages, goal: str, past: Sequence[PastStep]) -> None:
        """Every frame in a turn of the user, every answer in a turn of the assistant as it was given, and nothing is
        left out: what is asked at a step continues what was asked at the step before."""
        chat.text("user", self.asked(goal))
        for step in past:
            if step.image is not None:
                chat.image(self._seen(step.image, step.marks))
            chat.text("assistant", quoted(self._said(step)))
            chat.end()
            if told := self._came(step):
                chat.text("user", f"{quoted(told)}\n")

    def _said(self, step: PastStep) -> str:
        """A past step's answer as it was given; where it is in another dialect or was not kept, in the form of a
        target."""
        if not step.response:
            return self._answered(step)
        done = [] if step.action is None else [step.action, *step.further_actions]
        try:
            read = self.read_turn(step.response, step.marks).actions
        except ParseError:
            return self._answered(step) if done else step.response
        return step.response if [each.type for each in read] == [each.type for each in done] else self._answered(step)

    def _came(self, step: PastStep) -> str:
        """What an agent has to know of its last answer besides the next frame; "" for nothing."""
        if calls := self._calls(step):
            return "; ".join(calls)
        return self.written(None) if step.action is None else ""

    def as_taught(self, step: PastStep) -> PastStep:
        """The step as the history of a training sample tells it: an answer that was recorded with more or less
        reasoning than a target carries is told in the form of a target."""
        if self.style != "chat" or step.action is None or not step.response:
            return step
        try:
            same = self._sections(step.response) == self._sections(self.target(step))
        except Unrepresentable:
            return step
        return step if same else dataclasses.replace(step, response=None)

    def _opencua(
        self, chat: PromptMessages, goal: str, past: Sequence[PastStep], image: AnyImage
    ) -> tuple[list[Message], list[AnyImage]]:
        """As OSWorld's agent for OpenCUA asks: the steps before those with a frame in one turn of the assistant, then
        each later one in a turn after its frame; of an answer its reasoning without the code. Then the present frame,
        and the task after it.

        Source: mm_agents/opencua of OSWorld, `predict` with max_image_history_length = `images`.
        """
        first = max(0, len(past) - self.images + 1)
        older = [self._reasoned(past[index], index) for index in range(max(0, len(past) - self.history), first)]
        if older:
            chat.text("assistant", "\n".join(older))
            chat.end()
        for index in range(max(first, len(past) - self.history), len(past)):
            step = past[index]
            if step.image is not None:
                chat.image(self._seen(step.image, step.marks))
            chat.text("assistant", self._reasoned(step, index))
            chat.end()
        chat.image(image)
        chat.text("user", self.asked(goal))
        return chat.messages, chat.images

    def _reasoned(self, step: PastStep, index: int) -> str:
        """A past step's reasoning up to `level`; where its answer has none, what was done in its place."""
        found = self._sections(step.response or "")
        kept = [(name, found[name]) for name in LEVELS[self.level] if name in found] or [("Action", self._told(step))]
        return f"# Step {index + 1}:\n" + "\n".join(f"## {name}:\n{quoted(body)}\n" for name, body in kept)

    def asked(self, goal: str) -> str:
        """The task as the prompt tells it."""
        return self.goal.replace("{goal}", goal)

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
        """A past step's actions as the history tells them, and the ends of its calls of tools."""
        calls = self._calls(step)
        actions = () if calls and step.action is None else (step.action, *step.further_actions)
        return "; ".join([*(self.written(action, step.marks) for action in actions), *calls])

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

    def _demonstrate(self, chat: PromptMessages, shown: Demonstration) -> None:
        """The demonstration block: the task; per step the screen, the action, its result; after a failure its end."""
        config = self.demonstration or DemonstrationConfig()
        say = filler if shown.blank else str
        told = shown.steps[: config.steps]
        pictured = _spread(len(told), config.images if self.pictures else 0)
        name = "Demonstration" if shown.failed is None else "Failed attempt"
        chat.text("user", f"{name}\nTask: {say(shown.task)}\n")
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
        if shown.end is not None and self.pictures:
            chat.text("user", "Last screen: ")
            chat.image(shown.end)
            chat.text("user", "\n")
        if shown.failed:
            chat.text("user", f"{quoted(shown.failed)}\n")
        chat.text("user", f"End of the {name.lower()}\n")

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


def _spread(count: int, wanted: int) -> set[int]:
    """`wanted` of `count` indices: the first, and the others spread evenly over the rest."""
    if wanted >= count:
        return set(range(count))
    if wanted < 2:
        return set(range(wanted))
    return {round(index * (count - 1) / (wanted - 1)) for index in range(wanted)}
