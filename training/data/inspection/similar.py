"""Finds episodes and steps of two sides that are the same but for details of their frames: a pixel, a clock, a cursor,
another compression.

Goal and actions are the same, and the frames look alike, one by one. They are found by the index of
`training.data.similar_images`, without comparing each thing of one side with each of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from training.data.inspection.dataset_reader import DatasetScan, ScannedEpisode
from training.data.inspection.overlap import ContentKeys, Shared, StepPosition, groups
from training.data.similar_images import HASH, ThumbnailIndex, Thumbnails, thumbnail

LEVELS: Final = ("similar episode", "similar step")
Members = dict[tuple[str, tuple[str, ...]], list[int]]  # content, frames -> things


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

    def shas(self, episode: int, step: int) -> tuple[str, ...]:
        """Of all frames of an episode, or of one step's."""
        images = self.episodes[episode].images
        return tuple(images if step < 0 else images[step : step + 1])

    def of(self, shas: Sequence[str]) -> Thumbnails:
        import numpy as np

        looks = [self._of(sha) for sha in shas]
        small = np.stack([small for _, small in looks]) if looks else np.empty((0, HASH, HASH + 1), np.int16)
        return Thumbnails(tuple(size for size, _ in looks), small)

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

    def frames(self, members: Any, side: int, looks: _Looks) -> Members:
        """The members of one side, by content and frames: the content of an episode is without its final frame."""
        found: Members = {}
        for member in members[self.side[members] == side].tolist():
            shas = looks.shas(int(self.own[member]), int(self.at[member]))
            found.setdefault((str(self.same[member]), shas), []).append(member)
        return found


@dataclass
class _Found:
    """What two sides have alike: the contents of the second, the number of things of each, and one pair for each thing
    of the second."""

    contents: set[str] = field(default_factory=set)
    first: int = 0
    second: int = 0
    pairs: list[tuple[int, int]] = field(default_factory=list)


def _search(level: _Level, first: int, second: int, looks: _Looks) -> _Found:
    found = _Found()
    for members in level.across:
        ours, theirs = (level.frames(members, side, looks) for side in (first, second))
        found.first += sum(len(ours[key]) for key in _matches(ours, theirs, looks))
        for key, other in _matches(theirs, ours, looks).items():
            found.contents.add(key[0])
            found.second += len(theirs[key])
            found.pairs += [(other, member) for member in theirs[key]]
    return found


def _matches(some: Members, others: Members, looks: _Looks) -> dict[tuple[str, tuple[str, ...]], int]:
    """What looks like another content of the others: a member of that, or of one of several."""
    index, any_of = ThumbnailIndex(), {}
    for (content, shas), members in others.items():
        index.add(None, content, looks.of(shas))
        any_of[content] = members[0]
    found = {key: next(index.near(None, key[0], looks.of(key[1])), None) for key in some}
    return {key: any_of[content] for key, content in found.items() if content is not None}


def _shared(level: _Level, names: list[str], looks: _Looks, examples: int) -> Iterator[Shared]:
    def place(at: int) -> StepPosition:
        return StepPosition(int(level.own[at]), int(level.at[at]))

    for first in range(len(names)):
        for second in range(first + 1, len(names)):
            found = _search(level, first, second, looks)
            if found.pairs:
                yield Shared(
                    level.name,
                    names[first],
                    names[second],
                    len(found.contents),
                    found.first,
                    found.second,
                    int((level.side == first).sum()),
                    int((level.side == second).sum()),
                    [(place(one), place(other)) for one, other in found.pairs[:examples]],
                )
