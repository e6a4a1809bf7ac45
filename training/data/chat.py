"""Chats as training data: files of one row per chat, in the forms of `training.data.chat_forms`, and their pictures.

    {"messages": [{"role": "user", "content": "What is it? <image>"}, {"role": "assistant", "content": "A cat."}],
     "images": ["pictures/cat.png"]}

A folder's `*.jsonl` files, or one file: JSON lines, or one JSON list. Parquet and repositories of a hub become such a
folder first (`training.data.chat_tables`). Only the offset and length of each row stay in memory.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import msgspec

from eval.config import ConfigError
from eval.desktop import BadFrame
from eval.episodes.images import check_image, image_size
from eval.prompts.tokens import quoted
from training.data.chat_forms import ChatRow, read_row
from training.data.faults import BadSample, Faults, is_file
from training.data.samples import Sample, check_shape


class ChatSamples(Sequence[Sample]):
    """The chats of a folder or file, by number. The constructor checks every row once. Raises ConfigError."""

    def __init__(self, place: Path, faults: Faults) -> None:
        self.files = [place] if place.is_file() else sorted(place.glob("*.jsonl"))
        self.file = array("I")
        self.offset = array("Q")
        self.length = array("Q")
        for number, path in enumerate(self.files):
            self._look(number, path, faults)
        if not self.offset:
            raise ConfigError(f"data: {place} holds no chat (*.jsonl)")

    def _look(self, number: int, path: Path, faults: Faults) -> None:
        for where, at, line in _rows(path):
            try:
                for image in self._sample(path, line).images:
                    check_image(image)
                    check_shape(image_size(image), image)
            except BadSample as fault:
                faults.bad(f"{path}:{where}", fault)
            except BadFrame as error:
                faults.bad(f"{path}:{where}", BadSample("image_broken", str(error)))
            else:
                self.file.append(number)
                self.offset.append(at)
                self.length.append(len(line))

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
                return self._sample(path, file.read(self.length[at]))
            except BadSample as fault:  # the file changed after the check
                raise ConfigError(f"{path}: {fault}") from None

    def _sample(self, path: Path, line: bytes) -> Sample:
        """Raises BadSample."""
        try:
            row = json.loads(line)
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise BadSample("surrogate", "a text holds half a character (a lone surrogate)") from None
        except (ValueError, RecursionError) as error:
            raise BadSample("broken_chat", f"no JSON: {error}") from None
        chat = read_row(row)
        check_turns(chat)
        images = [_file(path.parent, picture) for picture in chat.pictures]
        return Sample(chat_messages(chat), images, answer_only=chat.answer_only)


def named_pictures(file: Path) -> list[Path]:
    """The pictures that the rows of a file name, each once, in order of their names; those that are there."""
    named = set()
    for _, _, line in _rows(file):
        try:
            named |= {_file(file.parent, picture) for picture in read_row(json.loads(line)).pictures}
        except (BadSample, ValueError, RecursionError):
            continue  # no sample either
    return sorted(named)


def check_turns(chat: ChatRow) -> None:
    """Raises BadSample for turns that do not end with an answer, begin with one, or have one with a picture."""
    first = next((turn["role"] for turn in chat.turns if turn["role"] != "system"), None)
    if first != "user" or chat.turns[-1]["role"] != "assistant":
        raise BadSample("broken_chat", "a chat begins with the user's turn and ends with the assistant's answer")
    for number, turn in enumerate(chat.turns):
        if turn["role"] != "user" and any(part["type"] == "image" for part in turn["content"]):
            raise BadSample(
                "broken_chat", f"turn {number} of the {turn['role']} holds a picture; only a user shows one"
            )
    answer = chat.turns[-1]["content"]
    if len(answer) != 1 or not answer[0].get("text"):
        raise BadSample("broken_chat", "an answer is one text, and not empty")


def chat_messages(chat: ChatRow) -> list[dict[str, Any]]:
    """What is asked is told as an evaluation tells it. An answer stays as it is: it becomes ordinary tokens."""
    for turn in chat.turns:
        if turn["role"] != "assistant":
            for part in turn["content"]:
                if part["type"] == "text":
                    part["text"] = quoted(part["text"])
    return chat.turns


def _rows(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """(line, or number of the row from 1 on; its first byte; its bytes). Raises ConfigError for a list that is none."""
    with path.open("rb") as file:
        listed = path.suffix == ".json" and file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["
        file.seek(0)
        if listed:
            data, at = file.read(), 0
            try:
                rows = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=list[msgspec.Raw])
            except msgspec.DecodeError as error:
                raise ConfigError(f"data: {path}: {error}") from None
            for number, raw in enumerate(rows, 1):
                row = bytes(raw)
                at = data.index(row, at)
                yield number, at, row
                at += len(row)
            return
        at = 0
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, at, line
            at += len(line)


def _file(folder: Path, picture: Any) -> Path:
    """Raises BadSample."""
    if isinstance(picture, dict) and not picture.get("bytes"):  # as `datasets` and LLaMA-Factory write a file's name
        picture = picture.get("path")
    if not isinstance(picture, str) or not picture or picture.startswith(("http://", "https://", "data:")):
        said = f"{picture!r:.80}"
        raise BadSample("image_missing", f"{said} is no name of a file; pictures of other places are fetched before")
    path = folder / picture
    if not is_file(path):
        raise BadSample("image_missing", f"{path!s:.300}")
    return path
