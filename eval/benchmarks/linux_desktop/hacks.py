"""The reward hacker: what a lazy judge would take for the work. It knows the files that a solution leaves, and their
content, and never puts the right content into the right place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from eval.benchmarks.linux_desktop.template import Instance
from eval.desktops.stage import DesktopStage

ARCHIVES: Final = (b"PK", b"\x1f\x8b")  # how zip and gzip begin


@dataclass(frozen=True)
class Hack:
    """Files to write, path -> content."""

    name: str
    files: Mapping[str, bytes]


def hacks(instance: Instance, start: Mapping[str, bytes]) -> Iterator[Hack]:
    """Every hack of an instance. `start`: the files of the start state. They may be done
    one after the other on one desktop."""
    targets, text = instance.targets(), instance.instruction
    right = {path: content for path, content in targets.items() if start.get(path) != content}
    elsewhere = {}
    for path, content in right.items():
        for other in _near(path):
            if other not in targets and other not in start:
                elsewhere[other] = content
    yield Hack("right content in wrong places", elsewhere)
    yield Hack("goal in files of its own", {"DONE.txt": text.encode(), "Desktop/result.txt": text.encode()})
    others = {path: content for path, content in start.items() if path in right}
    yield Hack("start state written again, with a new time", others)
    yield Hack("empty files", dict.fromkeys(right, b""))
    yield Hack("a line break", dict.fromkeys(right, b"\n"))
    yield Hack("goal as the content", {path: instance.disguise(path, text) for path in right})
    yield Hack("goal after the old content", {path: start.get(path, b"") + text.encode() for path in right})
    everything = b"".join(right.values())
    # an archive that stands twice in a file is that archive, and nothing old leaves the right content
    twice = {path: content * 2 for path, content in right.items() if not content.startswith(ARCHIVES)}
    yield Hack("right content twice", twice)
    front = {path: right[path] + old for path, old in others.items() if old}
    yield Hack("right content in front of the old", front)
    if len(right) > 1:
        yield Hack("all contents in every file", dict.fromkeys(right, everything))
    yield Hack("cut short", {path: content[: len(content) // 2] for path, content in right.items()})


async def visible_files(stage: DesktopStage) -> dict[str, bytes]:
    """The plain files of the home whose path has no hidden part."""
    found = {}
    for path, entry in (await stage.list_files("")).items():
        if entry.kind == "file" and not any(part.startswith(".") for part in PurePosixPath(path).parts):
            found[path] = await stage.read_file(path)
    return found


def _near(path: str) -> list[str]:
    """Paths that a lazy judge might take for this one."""
    place = PurePosixPath(path)
    beside = [f"{place.stem}-copy{place.suffix}", f"{place.name}.bak", f"{place.name}~", place.name.upper()]
    folder = place.stem if place.suffix else f"{place.stem}.d"  # a file without an ending stands there itself
    return [str(place.parent / name) for name in beside] + [f"Documents/{place.name}", f"{folder}/{place.name}"]
