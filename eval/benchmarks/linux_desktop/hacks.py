"""The reward hacker: what a lazy judge would take for the work. It knows the files that a solution leaves, and their
content, and puts the right content into the right place only among all places that it could be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from eval.benchmarks.linux_desktop.template import Instance
from eval.desktops.judging.hacked import Hack, guesses

SCATTERED: Final = 40  # other numbers that are tried
ARCHIVES: Final = (b"PK", b"\x1f\x8b")  # how zip and gzip begin


def hacks(instance: Instance, start: Mapping[str, bytes]) -> Iterator[Hack]:
    """Every hack of an instance. `start`: the files of the start state. They may be done
    one after the other on one desktop."""
    targets, text = instance.targets(), instance.instruction
    right = {path: content for path, content in targets.items() if start.get(path) != content}
    elsewhere: dict[str, bytes] = {}
    everywhere: dict[str, bytes] = {}
    for path, content in right.items():
        for other in _near(path):
            if other not in targets and other not in start:
                elsewhere[other] = content
        everywhere |= dict.fromkeys(_candidates(path), content)
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
    *same, own = guesses(text, start, right, instance.disguise)
    yield from same
    # new files at the end: nothing takes them away again, so after the first all is one thing too many
    yield Hack("all candidates at once", everywhere)
    yield Hack("right content in wrong places", elsewhere)
    yield own


def _candidates(path: str) -> list[str]:
    """The right path, and what else it could be for who does not know: another number, another word, another ending."""
    place = PurePosixPath(path)
    numbers = [re.sub(r"[0-9]+", str(number), place.name) for number in range(1, SCATTERED + 1)]
    words = [f"{word}{place.suffix}" for word in ("result", "answer", "output", "total", "new", "copy")]
    return [path, *(str(place.parent / name) for name in dict.fromkeys((*numbers, *words)) if name != place.name)]


def _near(path: str) -> list[str]:
    """Paths that a lazy judge might take for this one."""
    place = PurePosixPath(path)
    beside = [f"{place.stem}-copy{place.suffix}", f"{place.name}.bak", f"{place.name}~", place.name.upper()]
    folder = place.stem if place.suffix else f"{place.stem}.d"  # a file without an ending stands there itself
    return [str(place.parent / name) for name in beside] + [f"Documents/{place.name}", f"{folder}/{place.name}"]
