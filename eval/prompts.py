"""The one prompt builder: SFT, RL and evaluation get their messages from here, byte for byte the same.

The user turn holds the goal, the actions so far (as they were executed, in the dialect's own words), and the
screenshots; it never tells how many steps a task takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import msgspec
from PIL import Image

from eval.actions import Action
from eval.config import Config
from eval.desktop import Observation
from eval.dialects.base import Dialect
from eval.dialects.pyautogui import PyAutoGui
from eval.dsl import Dsl
from eval.images import AnyImage, open_image

Message = dict[str, Any]  # {"role", "content": [{"type": "text", "text"} | {"type": "image"}]}


@dataclass(frozen=True)
class PastStep:
    """A step that lies behind: what was done, and the frame it was done on. None: the answer was no action."""

    action: Action | None
    image: AnyImage | None = None


class Target(Protocol):
    """What a training target needs of a step; `eval.episodes.Step` is one."""

    @property
    def action(self) -> Action | None: ...

    @property
    def thought(self) -> str | None: ...


@dataclass(frozen=True)
class PromptBuilder:
    """
    system   system prompt; "" leaves the turn out, None takes the dialect's instructions
    history  how many past actions are listed, the latest ones
    images   how many screenshots are shown: the current one and the latest images - 1 before it
    thought  whether targets carry the step's thought
    """

    dialect: Dialect
    system: str | None = None
    history: int = 10
    images: int = 1
    thought: bool = False

    def __post_init__(self) -> None:
        if self.history < 0 or self.images < 1:
            raise ValueError("history starts at 0, images at 1")

    def messages(
        self, goal: str, past: Sequence[PastStep], observation: Observation
    ) -> tuple[list[Message], list[Image.Image]]:
        """Chat messages in Hugging Face form up to the agent's turn, and the images in the order of their places.

        Raises BadFrame for an image that can not be decoded.
        """
        messages, images = self.layout(goal, past, observation.image)
        return messages, [open_image(image) for image in images]

    def layout(self, goal: str, past: Sequence[PastStep], image: AnyImage) -> tuple[list[Message], list[AnyImage]]:
        """`messages` for a present frame `image`, with nothing opened: images are handed on as they came."""
        system = self.dialect.instructions() if self.system is None else self.system
        messages: list[Message] = []
        if system:
            messages.append({"role": "system", "content": [{"type": "text", "text": system}]})
        content: list[dict[str, str]] = []
        images: list[AnyImage] = []
        text = f"Goal: {goal}\n"
        start = max(0, len(past) - self.history)
        if start < len(past):
            text += "Actions so far:\n"
        for index in range(start, len(past)):
            step = past[index]
            if index >= len(past) - (self.images - 1) and step.image is not None:
                content += [{"type": "text", "text": text}, {"type": "image"}]
                images.append(step.image)
                text = "\n"
            text += f"{index + 1}. {self.written(step.action)}\n"
        content += [{"type": "text", "text": text}, {"type": "image"}]
        images.append(image)
        messages.append({"role": "user", "content": content})
        return messages, images

    def written(self, action: Action | None) -> str:
        """A past action as the prompt shows it."""
        return "(no valid action)" if action is None else self.dialect.format(action)

    def target(self, step: Target) -> str:
        """The assistant's turn for a step that has an action. Raises Unrepresentable."""
        if step.action is None:
            raise ValueError("a step without an action is no target")
        thought = step.thought.strip() if self.thought and step.thought else None
        return self.dialect.format_response(step.action, thought or None)


class PromptConfig(Config, frozen=True):
    """The `prompt` section of a configuration, of training and evaluation alike: give both the same one.

    decimals  places per coordinate (dsl; enough for a screen of 10^decimals - 1 pixels each way)
    marks     the Set-of-Marks form (dsl)
    The rest is PromptBuilder's.
    """

    dialect: Literal["dsl", "pyautogui"] = "dsl"
    decimals: Annotated[int, msgspec.Meta(ge=1, le=15)] = 4
    marks: bool = False
    system: str | None = None
    history: Annotated[int, msgspec.Meta(ge=0)] = 10
    images: Annotated[int, msgspec.Meta(ge=1)] = 1
    thought: bool = False

    def builder(self) -> PromptBuilder:
        dialect: Dialect = Dsl(self.decimals, self.marks) if self.dialect == "dsl" else PyAutoGui(self.decimals)
        return PromptBuilder(dialect, self.system, self.history, self.images, self.thought)
