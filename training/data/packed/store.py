"""The format of a packed dataset: its files, and the conversion between an episode and a Parquet row.

    dataset.json              written last: all files with sizes and sha256 (`DatasetManifest`); a folder without it is
                              incomplete
    <split>-00000.parquet     a row per episode; its steps are a list column
    images-00000.tar          every image once, member <sha256>.png; uncompressed, also readable as WebDataset
    images.parquet            the place of each image: sha256, pack, offset, length, width, height, dhash

A row holds the fields of episode.json and steps.jsonl under the same names, and reads back equal. Fields that are added
to them later go into `extra` (JSON), so that an older schema keeps them.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.actions import Action, ActionError
from eval.actions.geometry import Box
from eval.config import ConfigError
from eval.desktop import Expected
from eval.episodes import Episode, Step
from training.data.faults import BadSample

MARKER: Final = "dataset.json"
INDEX: Final = "images.parquet"
FORMAT: Final = "slipway-dataset"
VERSION: Final = 1

NUMBERS: Final = ("x", "y", "x2", "y2", "amount", "distance", "duration", "width", "height")
WHOLE: Final = ("element", "monitor_id")
LISTS: Final = ("keys", "modifiers")
TEXTS: Final = ("text", "direction", "button", "url", "app_name", "window_title")


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of episodes. actions: number of steps with an action."""

    file: str
    split: str
    episodes: int
    steps: int
    actions: int
    bytes: int
    sha256: str


class Pack(msgspec.Struct, frozen=True, kw_only=True):
    """A tar file of images, or the index of all images."""

    file: str
    images: int
    bytes: int
    sha256: str


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a split."""

    episodes: int = 0
    steps: int = 0
    actions: int = 0


class DatasetManifest(msgspec.Struct, frozen=True, kw_only=True):
    """dataset.json. `made_from` is the configuration that packed it, `skipped` the report of skipped episodes."""

    format: str
    version: int
    splits: dict[str, Counts]
    shards: list[Shard]
    packs: list[Pack]
    index: Pack
    made_from: dict[str, Any] = {}
    skipped: dict[str, Any] = {}


def is_dataset(folder: Path) -> bool:
    return (folder / MARKER).is_file()


def read_manifest(folder: Path) -> DatasetManifest:
    """dataset.json, after a check that its files exist with their sizes. Raises ConfigError."""
    path = folder / MARKER
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ConfigError(f"{path}: not a packed dataset")
    if data.get("version") != VERSION:
        raise ConfigError(f"{path}: version {data.get('version')!r} of the format; this program reads {VERSION}")
    try:
        manifest = msgspec.convert(data, DatasetManifest)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from None
    for part in parts(manifest):
        file = folder / part.file
        try:
            size = file.stat().st_size
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}") from None
        if size != part.bytes:
            raise ConfigError(f"{file}: {size} bytes; {MARKER} says {part.bytes}")
    return manifest


def parts(manifest: DatasetManifest) -> list[Shard | Pack]:
    """Every file of a dataset except dataset.json."""
    return [*manifest.shards, *manifest.packs, manifest.index]


def verify(folder: Path, part: Shard | Pack) -> None:
    """Raises ConfigError for a file whose content changed after packing."""
    file = folder / part.file
    try:
        with file.open("rb") as opened:
            actual = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    if actual != part.sha256:
        raise ConfigError(f"{file}: damaged: sha256 {actual[:12]}..., {MARKER} says {part.sha256[:12]}...")


@functools.cache
def schema() -> Any:
    """The Arrow schema of a row."""
    import pyarrow as pa

    text, whole, number, flag = pa.string(), pa.int64(), pa.float64(), pa.bool_()
    box = pa.list_(number)
    action = pa.struct(
        [("type", text)]
        + [(name, number) for name in NUMBERS]
        + [(name, whole) for name in WHOLE]
        + [(name, pa.list_(text)) for name in LISTS]
        + [(name, text) for name in TEXTS]
        + [("path", pa.list_(pa.list_(number)))]
    )
    step = pa.struct(
        [
            ("index", whole),
            ("screenshot", text),
            ("image", text),  # sha256 of the frame
            ("action", action),
            ("response", text),
            ("thought", text),
            ("parse_error", text),
            ("reward", number),
            ("done", flag),
            ("time", number),
            ("metrics", pa.list_(pa.struct([("name", text), ("value", number)]))),
            ("token_ids", pa.list_(whole)),
            ("logprobs", pa.list_(number)),
            ("expected", pa.struct([("action", action), ("box", box)])),
            ("further_actions", pa.list_(action)),  # absent in rows of the episode schema 1.0.0
            ("marks", pa.list_(pa.struct([("number", whole), ("box", box)]))),
            # absent in rows of the episode schema 1.0.0, and in those that the first packer of 1.1.0 wrote
            ("refused", text),
            ("calls", text),  # JSON
            ("usage", text),  # JSON
            ("cost", number),
            ("raw", text),  # JSON
            ("extra", text),  # JSON
        ]
    )
    return pa.schema(
        [
            ("episode_id", text),
            ("task_id", text),
            ("instruction", text),
            ("goal", text),
            ("screen", pa.struct([("width", whole), ("height", whole)])),
            ("seed", whole),
            ("success", flag),
            ("score", number),
            ("outcome", text),
            ("error", text),
            ("agent", text),
            ("environment", text),
            ("source", text),
            ("started", text),
            ("duration_ms", whole),
            ("tags", pa.list_(text)),
            ("metadata", text),  # JSON
            ("schema_version", text),
            ("folder", text),  # where it was packed from
            ("final_image", text),  # sha256 of the frame after the last action
            ("actions", whole),  # steps that have an action
            ("steps", pa.list_(step)),
            ("extra", text),  # JSON
        ]
    )


STEP_JSON: Final = ("calls", "usage", "raw")
STEP_FIELDS: Final = frozenset(
    (
        *("index", "screenshot", "action", "response", "thought", "parse_error", "reward", "done", "time", "metrics"),
        *("token_ids", "logprobs", "expected", "marks", "further_actions", "refused", "cost", *STEP_JSON),
        "tree",  # the name of a file that is not packed: left out
    )
)
PLAIN_STEP: Final = ("index", "screenshot", "response", "thought", "parse_error", "reward", "done", "time")
PLAIN_EPISODE: Final = (
    *("episode_id", "task_id", "instruction", "goal", "seed", "success", "score", "outcome", "error", "agent"),
    *("environment", "source", "started", "duration_ms", "schema_version"),
)
EPISODE_FIELDS: Final = frozenset((*PLAIN_EPISODE, "screen", "steps", "tags", "metadata"))


def to_row(episode: Episode, images: Sequence[str], folder: str = "") -> dict[str, Any]:
    """The row of an episode; `images` are the sha256 of its steps' frames and of the final frame, if any.

    Raises BadSample for values that Parquet cannot hold: invalid Unicode, integers of more than 64 bits.
    """
    row: dict[str, Any] = {name: getattr(episode, name) for name in PLAIN_EPISODE}
    row["screen"] = {"width": episode.screen[0], "height": episode.screen[1]}
    row["tags"] = list(episode.tags)
    row["metadata"] = json.dumps(episode.metadata)
    row["folder"] = folder
    row["final_image"] = images[len(episode.steps)] if len(images) > len(episode.steps) else None
    row["actions"] = sum(step.action is not None for step in episode.steps)
    row["steps"] = [_step_row(step, image) for step, image in zip(episode.steps, images, strict=False)]
    row["extra"] = _extra(episode, EPISODE_FIELDS)
    if not -(2**63) <= episode.seed < 2**63:
        raise BadSample("out_of_range", f"seed {episode.seed} has more than 64 bits")
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadSample("not_unicode", "a text holds half of a surrogate pair") from None
    return row


def _step_row(step: Step, image: str) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(step, name) for name in PLAIN_STEP}
    row["image"] = image
    row["action"] = None if step.action is None else step.action.to_json()
    row["further_actions"] = [further.to_json() for further in step.further_actions]
    row["metrics"] = [{"name": name, "value": value} for name, value in step.metrics.items()]
    row["token_ids"] = step.token_ids
    row["logprobs"] = step.logprobs
    if step.expected is not None:
        box = step.expected.box
        row["expected"] = {"action": step.expected.action.to_json(), "box": None if box is None else list(box)}
    row["marks"] = [{"number": number, "box": list(box)} for number, box in step.marks.items()]
    row["refused"], row["cost"] = step.refused, step.cost
    for name in STEP_JSON:
        row[name] = json.dumps(msgspec.to_builtins(given)) if (given := getattr(step, name)) else None
    row["extra"] = _extra(step, STEP_FIELDS)
    return row


def _extra(value: Any, known: frozenset[str]) -> str | None:
    """JSON of the fields that the schema lacks and that differ from their default."""
    fields = {
        field.name: given
        for field in msgspec.structs.fields(value)
        if field.name not in known and (given := getattr(value, field.name)) != field.default
    }
    return json.dumps(msgspec.to_builtins(fields)) if fields else None


def from_row(row: Mapping[str, Any]) -> Episode:
    """The episode of a row. Raises BadSample."""
    try:
        values: dict[str, Any] = {name: row[name] for name in PLAIN_EPISODE}
        values["screen"] = (row["screen"]["width"], row["screen"]["height"])
        values["tags"] = tuple(row["tags"])
        values["metadata"] = json.loads(row["metadata"])
        values["steps"] = tuple(_step(step) for step in row["steps"])
        if row["extra"]:
            values |= _known(row["extra"], Episode)
        return Episode(**values)
    except (ActionError, KeyError, TypeError, ValueError) as error:
        raise BadSample("broken_episode", f"{row.get('episode_id')}: {error}") from None


def _step(row: Mapping[str, Any]) -> Step:
    values: dict[str, Any] = {name: row[name] for name in PLAIN_STEP}
    if row["action"] is not None:
        values["action"] = action(row["action"])
    if row.get("further_actions"):
        values["further_actions"] = tuple(map(action, row["further_actions"]))
    if row["metrics"]:
        values["metrics"] = {item["name"]: item["value"] for item in row["metrics"]}
    values["token_ids"] = row["token_ids"]
    values["logprobs"] = row["logprobs"]
    if row["expected"] is not None:
        box = row["expected"]["box"]
        values["expected"] = Expected(action(row["expected"]["action"]), None if box is None else tuple(box))
    if row["marks"]:
        values["marks"] = numbered(row["marks"])
    for name in ("refused", "cost"):
        values[name] = row.get(name)
    stored = {name: json.loads(row[name]) for name in STEP_JSON if row.get(name)}
    values |= _known(json.dumps(stored), Step) if stored else {}
    if row["extra"]:
        values |= _known(row["extra"], Step)
    return Step(**values)


def action(row: Mapping[str, Any]) -> Action:
    """The action of a step's row. Raises ActionError."""
    return Action(**{name: value for name, value in row.items() if value is not None})


def numbered(marks: Sequence[Mapping[str, Any]] | None) -> dict[int, Box]:
    """The marks of a step's row."""
    return {item["number"]: tuple(item["box"]) for item in marks or ()}


def _known(extra: str, kind: type[Any]) -> dict[str, Any]:
    """The fields of `extra` that this version of the program knows. Raises ValueError."""
    decoded = json.loads(extra)
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {name: msgspec.convert(value, types[name]) for name, value in decoded.items() if name in types}
