"""Whether two frames look alike: the same but for details, as a pixel, a clock, a cursor or another compression.

At most DISTANCE of 256 bits of the perceptual hash differ, and the grey thumbnails by at most GREY of 255 in the mean.
Measured on 32 frames of three real recordings (two of AgentNetBench, one of AgentNet), at most: one pixel 0 bits and
.00, a cursor 3 and .03, a clock 2 and .36, JPEG of quality 95 6 and .10, of quality 80 8 and .26 (6 and .25 for 95 %).
Of 496 pairs of different frames 6 are as near, all of one recording each, in which little happened between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from PIL import Image

HASH: Final = 16  # a perceptual hash has 16 x 16 bits
DISTANCE: Final = 6  # bits of 256
GREY: Final = 1.0


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
