"""Chats as training data: files of one row per chat, in the forms of `training.data.chat_forms`, and their pictures.

    {"messages": [{"role": "user", "content": "What is it? <image>"}, {"role": "assistant", "content": "A cat."}],
     "images": ["pictures/cat.png"]}

A folder's `*.jsonl` files, or one file: JSON lines, or one JSON list. Only the offset and length of each row stay in
memory. Parquet files and a repository `hf://datasets/OWNER/NAME[@REVISION]` of a hub become such a folder first, once
for a revision and split, beside the cache of `datasets`, which reads them row by row; pictures (Image columns) are
written once, by their sha256.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.config import ConfigError
from eval.desktop import BadFrame
from eval.episodes.images import check_image, image_size
from eval.prompts.tokens import quoted
from training.data.chat_forms import ChatRow, read_row
from training.data.faults import BadSample, Faults, is_file
from training.data.samples import Sample, SampleSequence, check_shape

HUB: Final = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?/?")
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
SUFFIXES: Final = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg", b"RIFF": "webp", b"GIF8": "gif"}
COMMITS: Final[dict[str, str]] = {}  # what this process read: hf://datasets/OWNER/NAME[@REVISION] -> its commit then
FORM: Final = 1  # raise it when the same rows are written otherwise


def is_table(place: str) -> bool:
    """Whether `place` is a repository of data sets, or a folder with parquet files."""
    if place.startswith("hf://"):
        if HUB.fullmatch(place) is None:
            raise ConfigError(f"data: {place}: a data set of the hub is hf://datasets/OWNER/NAME[@REVISION]")
        return True
    return Path(place).is_dir() and next(Path(place).rglob("*.parquet"), None) is not None


def chat_folder(place: str, split: str) -> Path:
    """The folder of chats that a table becomes. Raises ConfigError."""
    import datasets

    if (found := HUB.fullmatch(place)) is not None:
        name, revision = found[1], _commit(found[1], found[2])
        COMMITS[place] = revision
        key: list[Any] = [FORM, name, revision, split]
    else:
        name, revision = place, None
        files = sorted(path for path in Path(place).resolve().rglob("*") if path.is_file())
        key = [FORM, split, [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files]]
    root = Path(datasets.config.HF_DATASETS_CACHE) / "slipway-chats"
    folder = root / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{folder.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of several processes writes, the others wait for it
        if not folder.is_dir():
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            _write(_reading(place, lambda: _table_rows(name, revision, split)), place, partial)
            partial.rename(folder)
    return folder


def _table_rows(name: str, revision: str | None, split: str) -> Any:
    from datasets import load_dataset

    return load_dataset(name, revision=revision, split=split, streaming=True).decode(False)


def _reading(place: str, read: Callable[[], Any]) -> Any:
    """Raises ConfigError for what `datasets` and the hub refuse."""
    try:
        return read()
    except Exception as error:
        # the hub's client has errors of its HTTP library besides these
        if not isinstance(error, ValueError | OSError | LookupError) and not type(error).__module__.startswith("http"):
            raise
        raise ConfigError(f"data: {place}: {' '.join(str(error).split())[:300]}") from None


def _commit(name: str, revision: str | None) -> str:
    """The commit of a revision. A commit is asked nothing. Raises ConfigError."""
    if revision is not None and COMMIT.fullmatch(revision):
        return revision
    from huggingface_hub import HfApi

    sha = _reading(f"hf://datasets/{name}", lambda: HfApi().dataset_info(name, revision=revision).sha)
    return str(sha)


def _write(rows: Any, place: str, folder: Path) -> None:
    """Raises ConfigError."""
    (folder / "images").mkdir(parents=True)
    iterator = iter(rows)
    with (folder / "chats.jsonl").open("w", encoding="utf-8") as out:
        while (row := _reading(place, lambda: next(iterator, None))) is not None:
            out.write(json.dumps(_named(row, folder), ensure_ascii=True, default=str) + "\n")


def _named(value: Any, folder: Path) -> Any:
    """A row's value with each picture's bytes as the name of their file."""
    if isinstance(value, dict):
        if value.keys() == {"bytes", "path"} and isinstance(value["bytes"], bytes):
            data = value["bytes"]
            suffix = next((suffix for magic, suffix in SUFFIXES.items() if data.startswith(magic)), "img")
            name = f"images/{hashlib.sha256(data).hexdigest()}.{suffix}"
            if not (folder / name).exists():
                (folder / name).write_bytes(data)
            return name
        return {key: _named(inner, folder) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_named(inner, folder) for inner in value]
    return value


class ChatSamples(SampleSequence):
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

    def _at(self, at: int) -> Sample:
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
