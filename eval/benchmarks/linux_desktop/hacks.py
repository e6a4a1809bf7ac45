"""The reward hacker: what a lazy judge would take for the work. It knows the files that a solution leaves, and their
content, and never puts the right content into the right place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from eval.benchmarks.linux_desktop.template import Instance
from eval.desktops.hacked import Hack, guesses
from eval.desktops.hacked import visible_files as visible_files  # templates take it from here, and their text is hashed

ARCHIVES: Final = (b"PK", b"\x1f\x8b")  # how zip and gzip begin


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
    yield from guesses(text, start, right, instance.disguise)
    others = {path: content for path, content in start.items() if path in right}
    everything = b"".join(right.values())
    # an archive that stands twice in a file is that archive, and nothing old leaves the right content
    twice = {path: content * 2 for path, content in right.items() if not content.startswith(ARCHIVES)}
    yield Hack("right content twice", twice)
    front = {path: right[path] + old for path, old in others.items() if old}
    yield Hack("right content in front of the old", front)
    if len(right) > 1:
        yield Hack("all contents in every file", dict.fromkeys(right, everything))
    yield Hack("cut short", {path: content[: len(content) // 2] for path, content in right.items()})


def _near(path: str) -> list[str]:
    """Paths that a lazy judge might take for this one."""
    place = PurePosixPath(path)
    beside = [f"{place.stem}-copy{place.suffix}", f"{place.name}.bak", f"{place.name}~", place.name.upper()]
    folder = place.stem if place.suffix else f"{place.stem}.d"  # a file without an ending stands there itself
    return [str(place.parent / name) for name in beside] + [f"Documents/{place.name}", f"{folder}/{place.name}"]
