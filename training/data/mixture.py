"""Mixes several sources by weight into one lazy sequence; every part of it has nearly the shares of the whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")
ROUNDS: Final = 4
LONGEST: Final = 100_000_000  # places of a mixture: about 2 GB while it is made


def apportion(total: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers that add up to `total` and follow the weights: largest remainders (Hamilton); ties to the first."""
    whole = math.fsum(weights)
    exact = [total * weight / whole for weight in weights]
    counts = [math.floor(value) for value in exact]
    order = sorted(range(len(weights)), key=lambda i: (counts[i] - exact[i], i))
    for i in order[: total - sum(counts)]:
        counts[i] += 1
    return counts


def interleave(counts: Sequence[int]) -> Any:
    """(sum of counts,) uint8: the source of each place; each source's places are evenly spread.

    The k-th of c items lies at (k + 1/2) / c of the way, so that after n places a source with share p has been taken
    p n times, give or take 1/2 + p S / 2 for S sources.
    """
    import numpy as np

    times = np.concatenate([(np.arange(count) + 0.5) / count for count in counts if count] or [np.empty(0)])
    owners = np.repeat(np.arange(len(counts), dtype=np.uint8), counts)
    return owners[np.argsort(times, kind="stable")]


def permuted(at: int, size: int, key: bytes) -> int:
    """The place of item `at` of `size` under the permutation of `key`, without building the permutation.

    A Feistel network over the next even number of bits, repeated until the result is below `size`.
    """
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = at >> half, at & mask
        for number in range(ROUNDS):
            digest = blake2b(right.to_bytes(8, "little") + bytes([number]), digest_size=8, key=key).digest()
            left, right = right, left ^ (int.from_bytes(digest, "little") & mask)
        at = left << half | right
        if at < size:
            return at


class Mixture(Sequence[T]):
    """`sources` mixed by `weights`. A source smaller than its share repeats in another order; of a larger one a random
    part is taken, and the next part in the next epoch. The order depends only on the seed and the sources' lengths.

    length   how many items an epoch has; by default one pass over the first source

    Item `epoch * len(mixture) + at` is that of place `at` in a later epoch: each source goes on where it stopped.
    Iterating gives the first epoch.
    """

    def __init__(
        self, sources: Sequence[Sequence[T]], weights: Sequence[float], *, seed: int = 0, length: int | None = None
    ) -> None:
        import numpy as np

        if len(sources) != len(weights) or not sources or not all(len(source) for source in sources):
            raise ValueError("a mixture needs sources that hold something, and a weight for each")
        if len(sources) > 255:
            raise ValueError(f"a mixture has 255 sources at most, not {len(sources)}")
        self.sources = sources
        self.seed = seed
        if length is None:
            exact = len(sources[0]) * math.fsum(weights) / weights[0]
            length = max(1, round(min(exact, LONGEST + 1)))
        if length > LONGEST:
            raise ValueError(
                f"a mixture of more than {LONGEST} samples: a pass over the first source, of weight {weights[0]:g} of "
                f"{math.fsum(weights):g}, is that long; give the first source a larger weight"
            )
        self.counts = apportion(length, weights)
        self.owners = interleave(self.counts)  # (length,)
        self.draws = np.empty(length, np.uint32)  # how many places of the same source come before
        for number, count in enumerate(self.counts):
            self.draws[self.owners == number] = np.arange(count, dtype=np.uint32)

    def __len__(self) -> int:
        return len(self.owners)

    def __iter__(self) -> Iterator[T]:
        return (self[at] for at in range(len(self)))

    def position(self, at: int) -> tuple[int, int]:
        """(source, item of that source) at a place of the mixture."""
        epoch, at = divmod(at, len(self)) if at >= len(self) else (0, at)
        number = int(self.owners[at])
        draw = int(self.draws[at]) + epoch * self.counts[number]
        cycle, draw = divmod(draw, len(self.sources[number]))
        key = f"{self.seed} {number} {cycle}".encode()
        return number, permuted(draw, len(self.sources[number]), key)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        number, item = self.position(at)
        return self.sources[number][item]
