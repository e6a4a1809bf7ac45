"""Finds episodes and steps of two sides that are the same but for details of their frames: a pixel, a clock, a cursor,
another compression.

Goal and actions are the same, and the frames look alike, one by one (`training.data.similar_images`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from training.data.inspection.look import DatasetScan, ScannedEpisode
from training.data.inspection.overlap import ContentKeys, Shared, StepPlace, groups
from training.data.similar_images import alike, thumbnail

LEVELS: Final = ("similar episode", "similar step")


def similar(
    keys: ContentKeys, scan: DatasetScan, ignored: Any = None, *, steps: bool, examples: int = 5
) -> Iterator[Shared]:
    """What each pair of sides has alike and not the same, by episodes, and by steps if `steps`.

    ignored   (steps,) bool: steps that do not count as steps

    Reads the frames of those episodes only whose goal and actions are another side's, too. Raises BadFrame.
    """
    import numpy as np

    a = keys.arrays()
    owner = a["episode"].astype(np.int64)
    whole = np.arange(len(a["side"]))
    levels = [(LEVELS[0], a["acted"], a["content"], whole, np.full(len(whole), -1))]
    if steps:
        keep = np.ones(len(owner), bool) if ignored is None else ~ignored
        levels.append((LEVELS[1], a["did"][keep], a["learned"][keep], owner[keep], a["step"][keep].astype(np.int64)))
    found = [
        _Level(name, list(_across(key, a["side"][own])), a["side"][own], same, own, at)
        for name, key, same, own, at in levels
    ]
    wanted = {int(level.own[m]) for level in found for members in level.across for m in members}
    looks = _Looks(scan, scan.at(wanted))
    for level in found:
        yield from _shared(level, keys.sides, looks, examples)


def _across(key: Any, side: Any) -> Iterator[Any]:
    """The members of each group of equal keys that is on several sides."""
    import numpy as np

    if not len(key):
        return
    order, starts = groups(key)
    for members in np.split(order, starts[1:]):
        if len(members) > 1 and len(np.unique(side[members])) > 1:
            yield members


class _Looks:
    """The thumbnails of frames, each opened once."""

    def __init__(self, scan: DatasetScan, episodes: dict[int, ScannedEpisode]) -> None:
        self.scan = scan
        self.episodes = episodes
        self.held: dict[str, tuple[tuple[int, int], Any]] = {}

    def of(self, episode: int, step: int) -> tuple[tuple[tuple[int, int], ...], Any]:
        """Of each frame of an episode, or of one step's: the sizes, and the thumbnails (frames, HASH, HASH + 1)."""
        import numpy as np

        images = self.episodes[episode].images
        looks = [self._of(image) for image in (images if step < 0 else images[step : step + 1])]
        return tuple(size for size, _ in looks), np.stack([small for _, small in looks])

    def _of(self, sha: str) -> tuple[tuple[int, int], Any]:
        if sha not in self.held:
            image = self.scan.open(sha)
            self.held[sha] = image.size, thumbnail(image)
        return self.held[sha]


@dataclass(frozen=True)
class _Level:
    """A level's name, the groups across sides, and of each thing its side, its content, its episode and its step."""

    name: str
    across: list[Any]
    side: Any
    same: Any
    own: Any
    at: Any


def _pairs(level: _Level, members: Any, first: int, second: int, looks: _Looks) -> Iterator[tuple[int, int]]:
    """The things of a group that are alike, of the one side and of the other."""
    import numpy as np

    ours: dict[Any, list[tuple[int, Any]]] = {}  # by the frames' sizes
    for one in members[level.side[members] == first].tolist():
        sizes, small = looks.of(int(level.own[one]), int(level.at[one]))
        ours.setdefault(sizes, []).append((one, small))
    stacks = {sizes: np.stack([small for _, small in held]) for sizes, held in ours.items()}
    for other in members[level.side[members] == second].tolist():
        sizes, small = looks.of(int(level.own[other]), int(level.at[other]))
        if sizes not in stacks:
            continue
        for place in np.flatnonzero(alike(stacks[sizes], small)).tolist():
            one = ours[sizes][place][0]
            if level.same[one] != level.same[other]:
                yield one, other


def _shared(level: _Level, names: list[str], looks: _Looks, examples: int) -> Iterator[Shared]:
    def place(at: int) -> StepPlace:
        return StepPlace(int(level.own[at]), int(level.at[at]))

    for first in range(len(names)):
        for second in range(first + 1, len(names)):
            pairs = [pair for members in level.across for pair in _pairs(level, members, first, second, looks)]
            if pairs:
                yield Shared(
                    level.name,
                    names[first],
                    names[second],
                    len({level.same[other] for _, other in pairs}),
                    len({one for one, _ in pairs}),
                    len({other for _, other in pairs}),
                    int((level.side == first).sum()),
                    int((level.side == second).sum()),
                    [(place(one), place(other)) for one, other in pairs[:examples]],
                )
