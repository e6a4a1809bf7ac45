"""What prompts are made of: messages as they are collected, and what is told of a step."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from eval.actions import Action
from eval.actions.geometry import Box
from eval.episodes import ToolCall
from eval.episodes.images import AnyImage
from eval.prompts.tokens import quoted

Message = dict[str, Any]  # {"role", "content": [{"type": "text", "text"} | {"type": "image"}]}
Part = dict[str, str]


@dataclass(frozen=True)
class PastStep:
    """A past step: the action, and the frame before it.

    action    None: the answer was no action
    image     the frame as the desktop gave it, and `marks` the numbered boxes on it
    thought   why, where the agent (or the human) said it; `response` the whole answer
    further_actions  of the same answer, after `action`
    calls     the calls of tools in the answer, with their results
    undone    why nothing, or not all, of the answer was done: it was no action, or an action could not be done
    """

    action: Action | None
    image: AnyImage | None = None
    thought: str | None = None
    response: str | None = None
    marks: Mapping[int, Box] = field(default_factory=dict)
    further_actions: tuple[Action, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    undone: str | None = None


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


class PromptMessages:
    """Collects messages in order; neighbouring texts become one part. Control tokens in texts become literal text, but
    for those in `keep`, which belong to the dialect's answers."""

    def __init__(self, keep: Collection[str] = ()) -> None:
        self.keep = keep
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
        if part["type"] == "text":  # of the whole part: two texts can spell a token together
            content[-1]["text"] = quoted(content[-1]["text"], self.keep)

    def text(self, role: str, text: str) -> None:
        self._part(role, {"type": "text", "text": text})

    def image(self, image: AnyImage) -> None:
        """An image of the user's turn."""
        self._part("user", {"type": "image"})
        self.images.append(image)

    def end(self) -> None:
        """Ends the turn: the next part starts a new turn, even with the same role."""
        self.open = False


def not_done(why: str) -> str:
    """What every agent is told, and nothing else, where something of its last answer was not done."""
    return f"Not done: {why}"


def called(call: ToolCall) -> str:
    """A call of a tool and how it ended, on one line."""
    end = f"error {json.dumps(call.error)}" if call.error is not None else json.dumps(call.result)
    return f"{call.name}({json.dumps(call.arguments)}) -> {end}"
