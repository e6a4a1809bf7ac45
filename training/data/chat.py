"""Chats as training data: a folder with `*.jsonl` files, one chat per line, and the images that they name.

    {"messages": [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "A cat."}],
     "images": ["pictures/cat.png"]}

A content is a text, or parts {"type": "text", "text"} and {"type": "image"}. Images without a part are put before the
first user turn's text. Only the offset of each line stays in memory.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, overload

import msgspec

from eval.config import ConfigError
from eval.desktop import BadFrame
from eval.episodes.images import check_image, image_size
from eval.prompts import Message
from eval.prompts.tokens import quoted
from training.data.faults import BadSample, Faults
from training.data.samples import Sample, check_shape


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    text: str


class ImagePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="image"):
    """The position of an image in a message."""


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart | ImagePart]


class Chat(msgspec.Struct, frozen=True):
    """A chat. Other fields of its line (ids, sources) are ignored."""

    messages: Annotated[list[Turn], msgspec.Meta(min_length=2)]
    images: list[str] = []


class ChatSamples(Sequence[Sample]):
    """The chats of a folder, by number. The constructor checks every line once. Raises ConfigError."""

    def __init__(self, folder: Path, faults: Faults) -> None:
        self.folder = folder
        self.files = sorted(folder.glob("*.jsonl"))
        self.file = array("I")
        self.offset = array("Q")
        for number, path in enumerate(self.files):
            self._look(number, path, faults)
        if not self.offset:
            raise ConfigError(f"data: {folder} holds no chat (*.jsonl)")

    def _look(self, number: int, path: Path, faults: Faults) -> None:
        with path.open("rb") as file:
            at = 0
            for count, line in enumerate(file, 1):
                if line.strip():
                    try:
                        for image in self._sample(line).images:
                            check_image(image)
                            check_shape(image_size(image), image)
                    except BadSample as fault:
                        faults.bad(f"{path}:{count}", fault)
                    except BadFrame as error:
                        faults.bad(f"{path}:{count}", BadSample("image_broken", str(error)))
                    else:
                        self.file.append(number)
                        self.offset.append(at)
                at += len(line)

    def __len__(self) -> int:
        return len(self.offset)

    @overload
    def __getitem__(self, at: int) -> Sample: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Sample]: ...
    def __getitem__(self, at: int | slice) -> Sample | Sequence[Sample]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        path = self.files[self.file[at]]
        with path.open("rb") as file:
            file.seek(self.offset[at])
            try:
                return self._sample(file.readline())
            except BadSample as fault:  # the file changed after the check
                raise ConfigError(f"{path}: {fault}") from None

    def _sample(self, line: bytes) -> Sample:
        """Raises BadSample."""
        try:
            chat = msgspec.convert(json.loads(line), Chat)
            json.dumps(chat.messages, default=msgspec.to_builtins, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise BadSample("surrogate", "a text holds half a character (a lone surrogate)") from None
        except (ValueError, msgspec.ValidationError) as error:
            raise BadSample("broken_chat", str(error)) from None
        messages: list[Message] = [{"role": turn.role, "content": _parts(turn)} for turn in chat.messages]
        users = [turn for turn in messages if turn["role"] == "user"]
        places = sum(part["type"] == "image" for turn in messages for part in turn["content"])
        answer = messages[-1]
        first = next((turn["role"] for turn in messages if turn["role"] != "system"), None)
        if answer["role"] != "assistant" or first != "user":
            raise BadSample("broken_chat", "a chat begins with the user's turn and ends with the assistant's answer")
        if len(answer["content"]) != 1 or not answer["content"][0].get("text"):
            raise BadSample("broken_chat", "an answer is one text, and not empty")
        if places == 0:
            users[0]["content"] = [{"type": "image"} for _ in chat.images] + users[0]["content"]
        elif places != len(chat.images):
            raise BadSample("broken_chat", f"{places} places for {len(chat.images)} images")
        images = [self.folder / name for name in chat.images]
        for image in images:
            if not image.is_file():
                raise BadSample("image_missing", str(image))
        return Sample(messages, images)


def _parts(turn: Turn) -> list[dict[str, Any]]:
    """What is asked is told as an evaluation tells it. An answer stays as it is: it becomes ordinary tokens."""
    told = str if turn.role == "assistant" else quoted
    parts: list[dict[str, Any]] = []
    for part in [TextPart(turn.content)] if isinstance(turn.content, str) else turn.content:
        parts.append({"type": "text", "text": told(part.text)} if isinstance(part, TextPart) else {"type": "image"})
    return parts
