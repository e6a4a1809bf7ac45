"""Whether two frames look alike: the same but for details, as a pixel, a clock, a cursor or another compression.

At most DISTANCE of 256 bits of the perceptual hash differ, and the grey thumbnails by at most GREY of 255 in the mean.
Measured on 32 frames of three real recordings (two of AgentNetBench, one of AgentNet), at most: one pixel 0 bits and
.00, a cursor 3 and .03, a clock 2 and .36, JPEG of quality 95 6 and .10, of quality 80 8 and .26 (6 and .25 for 95 %).
Of 496 pairs of different frames 6 are as near, all of one recording each, in which little happened between them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from PIL import Image

HASH: Final = 16  # a perceptual hash has 16 x 16 bits
DISTANCE: Final = 6  # bits of 256
GREY: Final = 1.0
BANDS: Final = 8  # two more than DISTANCE, so that two near hashes agree in at least two bands of 32 bits


def thumbnail(image: Image.Image) -> Any:
    """(HASH, HASH + 1) int16: the grey of each cell."""
    import numpy as np
    from PIL import Image

    return np.asarray(image.convert("L").resize((HASH + 1, HASH), Image.Resampling.BOX)).astype(np.int16)


def darker(small: Any) -> Any:
    """(..., HASH, HASH) bool: whether each cell of a thumbnail is darker than its right neighbour."""
    return small[..., :-1] < small[..., 1:]


def dhash(image: Image.Image) -> bytes:
    """Perceptual hash of 256 bits; near-duplicates differ in few.

    This is the common difference hash (dHash) with a finer grid, because screens of the same program differ only in
    details.
    """
    import numpy as np

    return np.packbits(darker(thumbnail(image))).tobytes()


def alike(many: Any, one: Any) -> Any:
    """(n,) bool: which of `many` (n, frames, HASH, HASH + 1) look as `one` (frames, HASH, HASH + 1) in each frame."""
    grey = abs(many - one).mean(axis=(-2, -1))
    bits = (darker(many) != darker(one)).sum(axis=(-2, -1))
    return ((grey <= GREY) & (bits <= DISTANCE)).all(axis=-1)


@dataclass(frozen=True)
class Thumbnails:
    """How the frames of something look: their sizes, and their thumbnails (frames, HASH, HASH + 1), int16."""

    sizes: tuple[tuple[int, int], ...]
    small: Any

    def alike(self, other: Thumbnails) -> bool:
        return self.sizes == other.sizes and bool(alike(self.small[None], other.small)[0])


class ThumbnailIndex:
    """Which groups of names hold something that looks like a new thing, without comparing it with each thing.

    group   the group of a name, which may change when groups are joined; None: each name is a group of its own

    Things are looked up by their last frame. Two that look alike agree in two bands of its hash at least (they are
    slanted stripes, so that each has bits of all rows and columns: large parts of a screen are plain), and the means of
    their greys differ by GREY at most. Of a group, the thing that was added last is compared first, and no other after
    one that is alike.
    """

    def __init__(self, group: Callable[[str], str] | None = None) -> None:
        self._joined = group is not None
        self._group = group or str
        self._buckets: dict[Hashable, dict[str, list[Thumbnails]]] = {}  # of each bucket the things of each group

    def add(self, key: Hashable, name: str, look: Thumbnails) -> None:
        group = self._group(name)
        for place in _places(look, 0):
            self._buckets.setdefault((key, look.sizes, place), {}).setdefault(group, []).append(look)

    def near(self, key: Hashable, name: str, look: Thumbnails) -> Iterator[str]:
        """Each group but that of `name` that holds a thing of the same key that looks alike. Whoever asks may join the
        groups before the next one."""
        for place in _places(look, 1):
            if (held := self._buckets.get((key, look.sizes, place))) is None:
                continue
            if self._joined:
                self._regroup(held)
            for group, things in list(held.items()) if self._joined else held.items():
                if self._group(group) != self._group(name) and any(look.alike(one) for one in reversed(things)):
                    yield group

    def _regroup(self, held: dict[str, list[Thumbnails]]) -> None:
        for name in [name for name in held if self._group(name) != name]:
            few, many = sorted((held.pop(name), held.pop(self._group(name), [])), key=len)
            many.extend(few)
            held[self._group(name)] = many


def _places(look: Thumbnails, beside: int) -> Iterator[Hashable]:
    """The buckets of a thing, among those of its sizes; with `beside` = 1 those of all that may look like it."""
    if not len(look.small):
        yield None
        return
    import numpy as np

    bits = darker(look.small[-1])
    slanted = np.stack([np.roll(row, number) for number, row in enumerate(bits)])
    bands = [band.tobytes() for band in np.packbits(slanted.reshape(-1, BANDS).T, axis=1)]
    grey = int(look.small[-1].mean() // GREY)
    for one, other in combinations(range(BANDS), 2):
        for mean in range(grey - beside, grey + beside + 1):
            yield one, other, bands[one], bands[other], mean
