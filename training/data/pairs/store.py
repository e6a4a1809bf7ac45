"""A folder of preference pairs: `pairs.jsonl`, `images/<sha256>.png`, and `report.json`, which is written last.

An image's name is the sha256 of its size and RGB values, so equal images are stored once even if their files differ,
and have the same name in every folder.
"""

from __future__ import annotations

import array
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, overload

import msgspec

from eval.actions.dialects.registry import CONTROL_TOKENS
from eval.actions.geometry import Box
from eval.config import ConfigError
from eval.desktop import BadFrame
from eval.episodes.images import AnyImage, check_image, image_size
from eval.prompts import Message
from eval.prompts.tokens import control_token, joined
from training.data.faults import BadSample, Faults, is_file
from training.data.samples import check_shape, open_image
from training.data.similar_images import HASH, ThumbnailIndex, Thumbnails, thumbnail

if TYPE_CHECKING:
    from PIL import Image

PAIRS: Final = "pairs.jsonl"
IMAGES: Final = "images"
REPORT: Final = "report.json"  # written last: the marker
Source = Literal["agents", "human", "ranked", "rollouts", "synthetic"]
Split = Literal["train", "test"]


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text of a turn."""

    type: Literal["text"]
    text: str


class ImagePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The place of a picture in a turn."""

    type: Literal["image"]


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A turn of a pair's prompt."""

    role: Literal["system", "user", "assistant"]
    content: list[dict[str, Any]]


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Two answers to one prompt, the better one first.

    prompt     chat messages up to the assistant's turn; `images` are file names in the order of their places
    task_id    what was to be done; step: at which step of it (0 the first)
    screen     of the observation, in pixels
    split_key  pairs that share a task or an image have the same one, and pairs with one prompt and better answer on
               images that look alike, so no split by it leaks; `split` is such a split
    expected   {"action", "box"} where the right answer is known; for measuring, no prompt shows it
    marks      the numbered boxes on the observation, where answers name them
    note       what more is known, e.g. how a synthetic answer was spoilt, or which agent gave the chosen one
    """

    prompt: list[Message]
    chosen: str
    rejected: str
    images: list[str]
    task_id: str
    source: Source
    screen: tuple[int, int]
    split_key: str = ""
    split: Split = "train"
    step: int = 0
    expected: dict[str, Any] | None = None
    marks: dict[int, Box] = {}
    note: str = ""

    def asked(self) -> str:
        """A digest of prompt and images: equal for pairs whose answers are to the same question."""
        return digest([self.prompt, self.images])

    def learned(self) -> str:
        """A digest of prompt and better answer: equal for pairs that teach the same, if their images look alike."""
        return digest([self.prompt, self.chosen.strip()])


def digest(value: object) -> str:
    """sha256 of a JSON value, hexadecimal; the same for equal values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def seen(image: Image.Image) -> str:
    """sha256 of an RGB image's size and values, hexadecimal."""
    return hashlib.sha256(f"{image.width}x{image.height} ".encode() + image.convert("RGB").tobytes()).hexdigest()


class PairThumbnails:
    """How the images of pairs in `folder` look; each is opened once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[tuple[int, int], Any]] = {}

    def look(self, images: Sequence[str]) -> Thumbnails | None:
        """None where one cannot be opened: it looks as nothing else does."""
        import numpy as np

        try:
            looks = [self._of(name) for name in images]
        except BadSample:
            return None
        small = np.stack([small for _, small in looks]) if looks else np.empty((0, HASH, HASH + 1), np.int16)
        return Thumbnails(tuple(size for size, _ in looks), small)

    def _of(self, name: str) -> tuple[tuple[int, int], Any]:
        if name not in self._known:
            image = open_image(self.folder / name)
            self._known[name] = image.size, thumbnail(image)
        return self._known[name]


class PictureStore:
    """Writes images into `folder`, each image once. `add` returns its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self._files: dict[str, str] = {}  # sha256 of a source file's bytes -> name: equal files are decoded once
        (folder / IMAGES).mkdir(parents=True, exist_ok=True)

    def add(self, image: AnyImage) -> str:
        """Raises BadSample for an image that is missing or broken."""

        from PIL import Image

        key = None
        if isinstance(image, Path):
            try:
                key = hashlib.sha256(image.read_bytes()).hexdigest()
            except OSError as error:
                raise BadSample("image_missing", f"{image}: {error.strerror}") from None
            if (known := self._files.get(key)) is not None:
                return known
        opened = image if isinstance(image, Image.Image) else open_image(image)
        name = f"{IMAGES}/{seen(opened)}.png"
        if not (path := self.folder / name).exists():
            opened.convert("RGB").save(path, format="PNG")
            self.count += 1
        if key is not None:
            self._files[key] = name
        return name


class Pairs(Sequence[Pair]):
    """The pairs of a folder, read on demand; memory holds only the offsets of their lines."""

    def __init__(self, folder: Path, places: Iterable[int]) -> None:
        self.folder = folder
        self._places = array.array("Q", places)
        self._file: tuple[int, int] | None = None  # (descriptor, the process that opened it)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> Pairs: ...
    def __getitem__(self, index: int | slice) -> Pair | Pairs:
        if isinstance(index, slice):
            return Pairs(self.folder, self._places[index])
        place = self._places[index]
        if self._file is None or self._file[1] != os.getpid():
            self._file = os.open(self.folder / PAIRS, os.O_RDONLY | os.O_CLOEXEC), os.getpid()
        try:
            return msgspec.json.decode(_line(self._file[0], place), type=Pair)
        except msgspec.MsgspecError:
            raise ConfigError(f"pairs: {self.where(index)}: the file changed while it was in use") from None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def images(self, pair: Pair) -> list[Path]:
        """The files of a pair's images, in the order of their placeholders."""
        return [self.folder / name for name in pair.images]

    def where(self, index: int) -> str:
        """The file and byte offset of the pair's line, for messages."""
        return f"{self.folder / PAIRS}, byte {self._places[index]}"


def _line(descriptor: int, place: int, block: int = 1 << 16) -> bytes:
    data = b""
    while b"\n" not in data:
        part = os.pread(descriptor, block, place + len(data))
        if not part:
            break
        data += part
    return data.partition(b"\n")[0]


def read_pairs(folder: Path, split: Split | None = None, faults: Faults | None = None) -> Pairs:
    """The pairs of a folder, or of one split, after a check of every line and its images.

    Raises ConfigError for an incomplete folder or one without such pairs, and for the first unusable line unless
    `faults` skips those.
    """
    if not folder.is_dir():
        raise ConfigError(f"pairs: there is no folder {folder}")
    if not (folder / REPORT).is_file():
        raise ConfigError(f"pairs: {folder} is no finished folder of pairs: {REPORT} is missing")
    faults = faults or Faults()
    whole: dict[str, bool] = {}
    places, place = [], 0
    try:
        with (folder / PAIRS).open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    pair = _checked(line, folder, whole)
                    if split is None or pair.split == split:
                        places.append(place)
                except BadSample as fault:
                    faults.bad(f"{folder / PAIRS}:{number}", fault)
                place += len(line)
    except OSError as error:
        raise ConfigError(f"{folder / PAIRS}: {error.strerror}") from None
    if not places:
        raise ConfigError(f"pairs: {folder} holds no pair" + (f" of the split {split}" if split else ""))
    return Pairs(folder, places)


def _checked(line: bytes, folder: Path, whole: dict[str, bool]) -> Pair:
    """The pair of a line. Raises BadSample for an invalid one."""
    try:
        pair = msgspec.json.decode(line, type=Pair)
    except msgspec.MsgspecError as error:
        raise BadSample("broken_line", str(error)) from None
    for name in pair.images:
        if not is_file(path := folder / name):
            raise BadSample("image_missing", name)
        if name not in whole:  # each image is checked once
            try:
                check_image(path)
                check_shape(image_size(path), path)
                whole[name] = True
            except BadFrame:
                whole[name] = False
        if not whole[name]:
            raise BadSample("image_broken", name)
    if pair.chosen.strip() == pair.rejected.strip():
        raise BadSample("equal_sides", pair.chosen)
    parts = [part for turn in pair.prompt for part in _parts(turn)]
    roles = [turn["role"] for turn in pair.prompt]
    asked = roles[1:] if roles[:1] == ["system"] else roles
    if not asked or "system" in asked or (asked[0], asked[-1]) != ("user", "user"):
        raise BadSample("broken_line", "prompt: its turns begin, after a system's, and end with the user's")
    texts = [part.get("text", "") for part in parts]
    for text in (*texts, pair.chosen, pair.rejected):
        if token := control_token(text, CONTROL_TOKENS):
            raise BadSample("special_token", f"a text holds {token}, a control token")
    places = sum(part.get("type") == "image" for part in parts)
    if places != len(pair.images):
        raise BadSample("image_count", f"{places} places in the prompt, {len(pair.images)} images")
    return pair


def _parts(turn: Message) -> list[dict[str, Any]]:
    """Raises BadSample."""
    try:
        told = msgspec.convert(turn, Turn)
        for part in told.content:
            msgspec.convert(part, TextPart if part.get("type") == "text" else ImagePart)
    except msgspec.ValidationError as error:
        form = '{"role", "content": [{"type": "text", "text"} | {"type": "image"}]}'
        raise BadSample("broken_line", f"prompt: a turn is {form}: {error}") from None
    if told.role != "user" and any(part["type"] == "image" for part in told.content):
        raise BadSample("broken_line", f"prompt: a turn of the {told.role} holds a picture; only a user shows one")
    return joined(told.content)


def publish(temporary: Path, folder: Path, report: Mapping[str, Any]) -> None:
    """Writes the report into a temporary folder and moves the folder to its name, replacing an older one."""
    (temporary / REPORT).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if folder.exists():
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        temporary.rename(folder)
        shutil.rmtree(old)
    else:
        temporary.rename(folder)


def leaks(train: Iterable[Pair], held_out: Iterable[Pair], examples: int = 3) -> dict[str, list[str]]:
    """What two sets of pairs share: {"split_key" | "task" | "prompt and images": examples}; {} for nothing.

    Memory holds only digests of the training pairs.
    """
    keys: dict[str, set[str]] = {"split_key": set(), "task": set(), "prompt and images": set()}
    for pair in train:
        for name, value in _identity(pair):
            keys[name].add(value)
    shared: dict[str, list[str]] = {}
    for pair in held_out:
        for name, value in _identity(pair):
            told = shared.setdefault(name, []) if value in keys[name] else None
            text = f"{pair.task_id} step {pair.step}"
            if told is not None and len(told) < examples and text not in told:
                told.append(text)
    return shared


def _identity(pair: Pair) -> Iterator[tuple[str, str]]:
    if pair.split_key:
        yield "split_key", pair.split_key
    yield "task", pair.task_id
    yield "prompt and images", pair.asked()


def similar(train: Pairs, held_out: Pairs, examples: int = 3) -> list[str]:
    """Examples of held-out pairs whose prompt, better answer and look of the images are those of a training pair."""
    asked: dict[str, list[Pair]] = {}
    for pair in held_out:
        asked.setdefault(pair.learned(), []).append(pair)
    both, index = set(asked), ThumbnailIndex(lambda name: name)
    looks, theirs = PairThumbnails(train.folder), PairThumbnails(held_out.folder)
    found: dict[str, None] = {}
    for pair in train:
        if (key := pair.learned()) not in both:
            continue
        for other in asked.pop(key, ()):
            if (look := theirs.look(other.images)) is not None:
                index.add(key, f"{other.task_id} step {other.step}", look)
        if (look := looks.look(pair.images)) is not None:
            found |= dict.fromkeys(index.near(key, "", look))
        if len(found) >= examples:
            break
    return list(found)[:examples]


def refuse_leaks(train: Iterable[Pair], held_out: Iterable[Pair]) -> None:
    """Raises ConfigError when held-out pairs share a task, a split key or an observation with the training's."""
    if shared := leaks(train, held_out):
        told = "; ".join(f"the same {name}: {', '.join(examples)}" for name, examples in shared.items())
        raise ConfigError(f"held_out: pairs leak from training: {told}")


def held_out(pairs: str, other: str | None, faults: Faults) -> tuple[Pairs, Pairs, str]:
    """(training pairs, held-out pairs, name of the latter). Raises ConfigError when they share content."""
    train = read_pairs(Path(pairs), "train", faults)
    try:
        test = read_pairs(Path(other or pairs), None if other else "test", faults if other else Faults("skip"))
    except ConfigError as error:
        if other or "holds no pair" not in str(error):
            raise
        raise ConfigError(f"{error}: make the pairs with a test_share, or name others as held_out") from None
    refuse_leaks(train, test)
    if shared := similar(train, test):
        raise ConfigError(
            f"held_out: pairs leak from training: the same prompt and better answer, with images that look alike: "
            f"{', '.join(shared)}; pairs that are made together from all sources have them in one split"
        )
    return train, test, Path(other).name if other else "test"
