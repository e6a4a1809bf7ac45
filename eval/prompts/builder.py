"""The only prompt builder: SFT, RL and evaluation get the same messages from it, byte for byte.

The user turn holds the goal, the actions so far (as they were executed, in the dialect's words) and the screenshots.
It never tells how many steps a task takes. The history can stand in turns of its own instead. A demonstration comes
before everything else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from eval.accessibility.prompt_text import tell
from eval.accessibility.tree import Tree
from eval.accessibility.visible import marks_of
from eval.actions import Unrepresentable
from eval.actions.dialects.base import Dialect
from eval.actions.geometry import Box, Cells, Point
from eval.config import ConfigError
from eval.desktop import Observation, Task
from eval.episodes.images import AnyImage, open_image
from eval.prompts import marks as som
from eval.prompts.demonstrations import NO_DEMONSTRATION, Demonstration, DemonstrationConfig, Pool, filler
from eval.prompts.messages import Message, PastStep, PromptMessages, not_done
from eval.prompts.tokens import quoted
from eval.prompts.wording import Level, StepWording, Style, control_tokens

if TYPE_CHECKING:
    from PIL import Image

GOAL: Final = "Goal: {goal}\n"
Shown = Literal["screenshot", "tree", "both", "som"]


@dataclass(frozen=True)
class PromptBuilder(StepWording):
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
    lenient        whether answers are repaired, see PromptConfig
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
    lenient: bool = False

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
    def system_prompt(self) -> str:
        """What a model is told before the task; "" where nothing is."""
        return self.dialect.instructions() if self.system is None else self.system

    @property
    def frame(self) -> tuple[int, int] | None:
        """(width, height) of the dialect's coordinates; None: they are fractions of the screen, or marks."""
        cells = getattr(self.dialect, "frame", None)
        return (cells.width, cells.height) if isinstance(cells, Cells) else None

    @property
    def pictures(self) -> int:
        """How many screenshots are shown: none where the tree stands in their place."""
        return 0 if self.observation == "tree" else self.images

    def ask(
        self,
        task: Task,
        past: Sequence[PastStep],
        observation: Observation,
        demonstration: Demonstration | None = None,
    ) -> tuple[list[Message], list[Image.Image]]:
        """What an agent is asked at a step of `task`: `messages`, with the demonstration that the rule chooses unless
        one is given. Raises ConfigError where there must be one and is none, BadFrame for a broken image."""
        first = past[0].image if past else observation.image
        shown = self.choose(task, first) if demonstration is None else demonstration
        return self.messages(task.instruction, past, observation, shown)

    def choose(self, task: Task, screen: AnyImage | None = None) -> Demonstration:
        """The demonstration of an evaluation's task, whose first screen `screen` is; NO_DEMONSTRATION where none is
        wanted. Raises ConfigError, BadFrame."""
        self.check([task])
        config = self.demonstration
        if config is None or self.pool is None:
            return NO_DEMONSTRATION
        return self.pool.choose(task, config.rule, config.seed, config.by, screen) or NO_DEMONSTRATION

    def check(self, tasks: Sequence[Task]) -> None:
        """Raises ConfigError when an evaluation of the tasks lacks a demonstration that the configuration asks for."""
        config = self.demonstration
        if config is None or config.rule == "none":
            return
        if self.pool is None:
            raise ConfigError("prompt.demonstration.folder: name the episodes that an evaluation shows, or rule: none")
        for task in tasks:
            if config.required and not self.pool.has(task, config.rule, config.by):
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
        system = self.system_prompt
        chat = PromptMessages(control_tokens(self.dialect))
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

    def tree_text(self, tree: Tree) -> str:
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
            self._turn_of(chat, f"# Step {index + 1}:\n{self._answered(step)}", step)
        chat.text("user", self.asked(goal))

    def _chat(self, chat: PromptMessages, goal: str, past: Sequence[PastStep]) -> None:
        """Every frame in a turn of the user, every answer in a turn of the assistant as it was given, and nothing is
        left out: what is asked at a step continues what was asked at the step before."""
        chat.text("user", self.asked(goal))
        for step in past:
            if step.image is not None:
                chat.image(self._seen(step.image, step.marks))
            chat.text("assistant", self._said(step))
            chat.end()
            if told := self._came(step):
                chat.text("user", f"{quoted(told)}\n")

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
            self._turn_of(chat, self._reasoned(step, index), step)
        chat.image(image)
        chat.text("user", self.asked(goal))
        return chat.messages, chat.images

    def _turn_of(self, chat: PromptMessages, text: str, step: PastStep) -> None:
        """A past step's turn, and after it what of the step was not done, where the turn does not say it already."""
        chat.text("assistant", text)
        chat.end()
        if step.undone is not None and (told := not_done(step.undone)) not in text:
            chat.text("user", f"{told}\n")

    def asked(self, goal: str) -> str:
        """The task as the prompt tells it."""
        return self.goal.replace("{goal}", quoted(goal))

    def _demonstrate(self, chat: PromptMessages, shown: Demonstration) -> None:
        """The demonstration block: the task; per step the screen, the action, its result; after a failure its end."""
        config = self.demonstration or DemonstrationConfig()
        say = filler if shown.blank else str
        told = shown.steps[: config.steps]
        pictured = _spread(len(told), config.images if self.pictures else 0)
        name = "Demonstration" if shown.failed is None else "Failed attempt"
        chat.text("user", f"{name}\nTask: {quoted(say(shown.task))}\n")
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
                chat.text("user", f"Result: {quoted(say(step.result))}\n")
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


def _spread(count: int, wanted: int) -> set[int]:
    """`wanted` of `count` indices: the first, and the others spread evenly over the rest."""
    if wanted >= count:
        return set(range(count))
    if wanted < 2:
        return set(range(wanted))
    return {round(index * (count - 1) / (wanted - 1)) for index in range(wanted)}
