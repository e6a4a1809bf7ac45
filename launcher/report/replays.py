"""Episodes of an evaluation with their frames; which of them a reader looks at first."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from launcher.decoding import decode
from launcher.errors import NotFound
from launcher.report.pictures import ReportPictures
from launcher.results.read import DamagedResults, StoredOutput, decode_lines

SHOWN = 3
FINAL_SCREEN = "final screen"
LOOKED_AT = 400  # episodes read, at most, in search of a failed one
FRAME_BYTES = 4 * 1024 * 1024  # frames of one replay in the page, at most; above it they are made smaller or left out
MAX_WIDTH = 1280  # pixels of a frame that is made smaller
MAGIC = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}


class NoSteps(DamagedResults):
    """An episode that ended before its first step: there is nothing to replay."""


class EpisodeHead(msgspec.Struct, frozen=True):
    """The fields of episode.json that the report shows."""

    episode_id: str
    instruction: str
    screen: tuple[int, int]
    task_id: str = ""
    goal: str = ""
    seed: int | str | None = None
    success: bool | None = None
    score: float | None = None
    outcome: str = "scored"
    error: str | None = None
    agent: str = ""
    duration_ms: float | None = None


class StepLine(msgspec.Struct, frozen=True):
    """The fields of a line of steps.jsonl that the report shows."""

    index: int
    screenshot: str
    action: dict[str, Any] | None = None
    further_actions: tuple[dict[str, Any], ...] = ()
    refused: str | None = None
    response: str | None = None
    thought: str | None = None
    parse_error: str | None = None

    @property
    def actions(self) -> tuple[dict[str, Any], ...]:
        """All actions of the answer, in their order."""
        return (self.action, *self.further_actions) if self.action is not None else ()

    @property
    def error(self) -> str:
        return self.parse_error or (f"refused: {self.refused}" if self.refused else "")


@dataclass(frozen=True)
class ReplayStep:
    """One step of a replay. `frame` is an index into the replay's frames, None if the frame is left out. Coordinates
    are those of the step's first action that has some, normalised to [0, 1]; None if none has."""

    frame: int | None
    text: str
    thought: str = ""
    error: str = ""
    same: bool = False  # the next screen is the same
    x: float | None = None
    y: float | None = None
    x2: float | None = None
    y2: float | None = None


@dataclass(frozen=True)
class Replay:
    head: EpisodeHead
    steps: tuple[ReplayStep, ...]
    frames: tuple[str, ...]  # addresses of pictures, each once
    left_out: int  # frames that are too large or not pictures


def folders_of(output: StoredOutput) -> list[str]:
    """The folders of all episodes, sorted."""
    return sorted(
        path.removesuffix("/episode.json")
        for path in output.files
        if path.startswith("episodes/") and path.count("/") == 2 and path.endswith("/episode.json")
    )


def choose(output: StoredOutput, count: int = SHOWN) -> list[str]:
    """The folders of the episodes to look at first: the first failures and the first success among the scored ones."""
    folders = folders_of(output)
    good: list[str] = []
    bad: list[str] = []
    other: list[str] = []
    for folder in folders[:LOOKED_AT]:
        try:
            head = read_head(output, folder)
        except (DamagedResults, NotFound):
            continue
        kind = other if head.outcome != "scored" or head.success is None else good if head.success else bad
        kind.append(folder)
        if good and len(bad) >= count - 1:
            break
    chosen = bad[: count - 1] + good[:1] + bad[count - 1 :] + good[1:] + other
    return chosen[:count]


def read_head(output: StoredOutput, folder: str) -> EpisodeHead:
    try:
        return decode(output.read(f"{folder}/episode.json"), EpisodeHead)
    except msgspec.MsgspecError as error:
        raise DamagedResults(f"{output.prefix}{folder}/episode.json: {error}") from None


def read_replay(output: StoredOutput, folder: str, pictures: ReportPictures | None = None) -> Replay:
    """One episode. Raises DamagedResults or NotFound."""
    head = read_head(output, folder)
    lines = decode_lines(output.read(f"{folder}/steps.jsonl"), StepLine, f"{output.prefix}{folder}/steps.jsonl")
    names = [line.screenshot for line in lines]
    final = f"{len(lines):03d}.png"
    if f"{folder}/{final}" in output.files:
        names.append(final)
    frames = ReplayFrames(output, folder, names, pictures or ReportPictures())
    following = [*names[1:], ""]
    steps = [
        ReplayStep(
            frame=frames.index(line.screenshot),
            same=frames.same(line.screenshot, after),
            text="; ".join(map(action_text, line.actions)) or (line.response or "no action").strip(),
            thought=(line.thought or "").strip(),
            error=line.error,
            **points(line.actions),
        )
        for line, after in zip(lines, following, strict=False)
    ]
    if final in names:
        steps.append(ReplayStep(frame=frames.index(final), text=FINAL_SCREEN))
    if not steps:
        raise NoSteps(f"{output.prefix}{folder} has no steps")
    return Replay(head, tuple(steps), tuple(frames.uris), frames.left_out)


def points(actions: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The coordinates of the first action that has some; None for those that are missing or outside the screen."""
    action = next((each for each in actions if each.get("x") is not None), {})

    def at(name: str) -> float | None:
        value = action.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            return None
        return float(value)

    x, y, x2, y2 = (at(name) for name in ("x", "y", "x2", "y2"))
    if x is None or y is None:
        x = y = None
    if x is None or x2 is None or y2 is None:
        x2 = y2 = None
    return {"x": x, "y": y, "x2": x2, "y2": y2}


def action_text(action: Mapping[str, Any]) -> str:
    """An action in one line, whatever its type: `click 0.412, 0.730`, `type "alice"`."""
    words = [str(action.get("type", "?")).replace("_", " ")]
    for a, b in (("x", "y"), ("x2", "y2")):
        x, y = action.get(a), action.get(b)
        if isinstance(x, int | float) and isinstance(y, int | float):
            words.append(f"{'to ' if a == 'x2' else ''}{x:.3f}, {y:.3f}")
    for key, value in action.items():
        if key in ("type", "x", "y", "x2", "y2") or value is None:
            continue
        if key == "text":
            words.append(f"“{value}”")
        elif key == "keys" and isinstance(value, list):
            words.append("+".join(map(str, value)))
        elif key == "direction":
            words.append(str(value))
        elif key == "path" and isinstance(value, list):
            words.append(f"by way of {len(value)} point{'s' if len(value) != 1 else ''}")
        else:
            words.append(f"{key} {value}")
    return " ".join(words)


class ReplayFrames:
    """The frames of one episode, without duplicates. In the page they are at most FRAME_BYTES."""

    def __init__(self, output: StoredOutput, folder: str, names: list[str], pictures: ReportPictures) -> None:
        self.uris: list[str] = []
        self.left_out = 0
        self._index: dict[str, int | None] = {}
        self._digests: dict[str, bytes] = {}
        wanted = list(dict.fromkeys(names))
        with ThreadPoolExecutor(8) as pool:
            read = list(pool.map(lambda name: self._read(output, f"{folder}/{name}"), wanted))
        bodies = {name: body for name, body in zip(wanted, read, strict=True) if body is not None}
        self.left_out += len(wanted) - len(bodies)
        self._digests = {name: hashlib.sha256(body).digest() for name, body in bodies.items()}
        sizes = {self._digests[name]: len(body) for name, body in bodies.items()}
        shrink = not pictures.beside and sum(sizes.values()) > FRAME_BYTES
        seen: dict[bytes, int] = {}
        room = FRAME_BYTES
        for name, body in bodies.items():
            digest = self._digests[name]
            if digest in seen:
                self._index[name] = seen[digest]
                continue
            if shrink:
                body = smaller(body)
            kind = picture_kind(body)
            fits = kind is not None and (pictures.beside or len(body) <= room)
            address = pictures.address(body, kind) if fits and kind is not None else None
            if address is None:
                self.left_out += 1
                continue
            room -= len(body)
            seen[digest] = self._index[name] = len(self.uris)
            self.uris.append(address)

    @staticmethod
    def _read(output: StoredOutput, path: str) -> bytes | None:
        try:
            return output.read(path)
        except (DamagedResults, NotFound):
            return None

    def index(self, name: str) -> int | None:
        return self._index.get(name)

    def same(self, name: str, other: str) -> bool:
        """Whether two frames are the same picture, byte for byte."""
        return name in self._digests and self._digests[name] == self._digests.get(other)


def picture_kind(body: bytes) -> str | None:
    """The kind of a picture by its first bytes; None for anything else."""
    return next((kind for magic, kind in MAGIC.items() if body.startswith(magic)), None)


def smaller(body: bytes) -> bytes:
    """The picture in fewer bytes if Pillow is installed, otherwise unchanged."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError:
        return body
    try:
        with Image.open(io.BytesIO(body)) as image:
            if image.mode not in ("L", "P", "RGB") or image.info.keys() & {"exif", "icc_profile", "transparency"}:
                return body  # a browser shows these right; WebP in RGB would not
            if image.width > MAX_WIDTH:
                image.thumbnail((MAX_WIDTH, MAX_WIDTH * 4))
            out = io.BytesIO()
            image.convert("RGB").save(out, "WEBP", quality=80)
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError):
        return body
    return out.getvalue() if out.tell() < len(body) else body
