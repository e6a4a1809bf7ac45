"""Our own episode folders: checked and copied, or only checked with `check: true`.

A folder without its marker is a try that was cut off. Every frame must be a PNG of the episode's screen size, every
point lie on the screen. Two labels contradict each other when the goal, the pixels of the frame and the actions before
it are the same and the action is another one: a model can only get one of them right. Where it points may differ by
`same`. Episodes that failed, and those that nobody could judge for want of a working environment, are no labels.

What is remembered of a label takes some 300 bytes: 1 GB for three million steps.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eval.actions import Action
from eval.config import ConfigError
from eval.episodes import MARKER, READ_VERSIONS, STEPS, Episode, EpisodeError, is_complete, read_episode
from training.data.faults import BadSample
from training.data.ingest.registry import EpisodesConfig
from training.data.ingest.source import content, decoded, inside, lines
from training.data.ingest.tally import Lost, Tally
from training.data.looks import LOOKS, write_looks
from training.data.similar_images import dhash

if TYPE_CHECKING:
    from PIL import Image

PLACES: Final = ("x", "y", "x2", "y2")
Labels = dict[bytes, tuple[Action, str]]


def episodes(config: EpisodesConfig, tally: Tally, scratch: Path) -> Iterator[tuple[str, Episode, Sequence[Path]]]:
    """(folder, episode, frames) of every folder, one at a time. Raises ConfigError."""
    root = Path(config.recording)
    folders = sorted(path for path in root.glob("*") if (path / MARKER).is_file() or (path / STEPS).is_file())
    if not folders:
        raise ConfigError(f"recording: there is no episode folder in {root}")
    tally.total = len(folders)
    labels: Labels = {}
    for folder in folders:
        try:
            looks: dict[str, str] | None = None if config.check else {}
            episode, frames, seen = load(folder, looks)
            contradictions(episode, seen, labels, config.same)
            if looks is not None:
                write_looks(scratch / LOOKS, looks)
            yield folder.name, episode, frames
        except (Lost, BadSample) as trouble:
            tally.lose(folder.name, trouble)


def load(folder: Path, looks: dict[str, str] | None = None) -> tuple[Episode, list[Path], list[bytes]]:
    """A valid episode, its frames' files, the final one too where there is one, and of an episode that is a label the
    digest of what each shows. Each file is decoded once. `looks`: gets how each looks. Raises BadSample."""
    if not is_complete(folder):
        raise BadSample("unfinished", f"there is no {MARKER}")
    try:
        version = json.loads((folder / MARKER).read_bytes())
    except (ValueError, OSError, RecursionError) as error:
        raise BadSample("broken_episode", f"{MARKER}: {error}") from None
    version = version.get("schema_version") if isinstance(version, dict) else None
    if version not in READ_VERSIONS:
        raise BadSample("wrong_schema", f"schema_version is {version!r}, not {' or '.join(map(repr, READ_VERSIONS))}")
    _on_screen(folder)
    try:
        episode = read_episode(folder)
    except EpisodeError as error:
        raise BadSample("broken_episode", str(error).removeprefix(f"{folder}: ")) from None
    if not episode.steps:
        raise BadSample("no_steps")
    names = [step.screenshot for step in episode.steps]
    if names != [episode.frame(index) for index in range(len(names))]:
        raise BadSample("broken_episode", f"frames are named {names[0]}, ... instead of {episode.frame(0)}, ...")
    frames = [inside(folder, name) for name in names]
    if (folder / episode.frame(len(names))).is_file():
        frames.append(folder / episode.frame(len(names)))
    seen: list[bytes] = []
    labelled = episode.success is not False and episode.outcome == "scored"
    for path in frames:
        data = content(path)
        image = decoded(data, path.name)
        if looks is not None:
            looks[hashlib.sha256(data).hexdigest()] = dhash(image).hex()
        if image.size != episode.screen:
            size = f"{image.width}x{image.height}"
            raise BadSample("other_size", f"{path.name} is {size}, the screen {episode.screen}")
        if labelled and len(seen) < len(names):
            seen.append(pixels(image))
    return episode, frames, seen


def _on_screen(folder: Path) -> None:
    """Tells a point off the screen from a step that is broken otherwise. Raises BadSample."""
    if not (folder / STEPS).is_file():
        raise BadSample("broken_episode", f"no {STEPS}")
    for number, row in lines(folder / STEPS):
        if row is None:
            raise BadSample("bad_line", f"{STEPS}:{number} is no JSON object")
        action = row.get("action")
        places = action if isinstance(action, dict) else {}
        for name in PLACES:
            value = places.get(name)
            if isinstance(value, int | float) and not 0 <= value <= 1:
                raise BadSample("off_screen", f"{STEPS}:{number}: {name} is {value}")


def contradictions(episode: Episode, seen: Sequence[bytes], labels: Labels, same: float) -> None:
    """Checks the episode's labels against all before it, then adds them. `seen`: as of `load`. Raises BadSample."""
    if not seen:
        return
    fresh: Labels = {}
    past = hashlib.sha256((episode.goal or episode.instruction).encode())
    for step, shown in zip(episode.steps, seen, strict=False):
        if step.action is not None:
            key = past.copy()
            key.update(shown)
            digest = key.digest()[:16]
            known = labels.get(digest)
            if known is not None and not alike(known[0], step.action, same):
                here = f"step {step.index} is {step.action}"
                raise BadSample("contradictory_label", f"{here}; goal, screen and past as in {known[1]}: {known[0]}")
            fresh[digest] = (step.action, f"{episode.episode_id} step {step.index}")
        past.update(json.dumps(None if step.action is None else step.action.to_json()).encode())
    labels.update(fresh)


def pixels(image: Image.Image) -> bytes:
    """A digest of what a picture shows, however it is compressed."""
    return hashlib.sha256(repr(image.size).encode() + image.tobytes()).digest()


def alike(one: Action, other: Action, same: float) -> bool:
    """Whether two actions differ in nothing but where they point, and there by no more than `same`."""

    def rest(action: Action) -> dict[str, Any]:
        return {name: value for name, value in action.to_json().items() if name not in PLACES}

    def near(a: tuple[float, float] | None, b: tuple[float, float] | None) -> bool:
        return a == b or (a is not None and b is not None and math.dist(a, b) <= same)

    return rest(one) == rest(other) and near(one.point, other.point) and near(one.end, other.end)
