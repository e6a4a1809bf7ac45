"""Near-duplicates: the clusters are those of comparing each with each."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from training.data.inspection.contents import clusters
from training.data.similar_images import DISTANCE


def slow(hashes: list[bytes]) -> list[list[int]]:
    """Connected components, each pair compared."""
    groups = [{i} for i in range(len(hashes))]
    for i in range(len(hashes)):
        for j in range(i):
            if (int.from_bytes(hashes[i]) ^ int.from_bytes(hashes[j])).bit_count() <= DISTANCE:
                one, other = (next(g for g in groups if k in g) for k in (i, j))
                if one is not other:
                    groups.remove(other)
                    one |= other
    return sorted((sorted(g) for g in groups if len(g) > 1), key=lambda g: (-len(g), g[0]))


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 5), st.integers(0, 5))
def test_clusters_are_those_of_comparing_each_pair(seed: int, count: int, centres: int, flips: int) -> None:
    rng = random.Random(seed)
    middles = [rng.getrandbits(256) for _ in range(centres)]
    hashes = []
    for _ in range(count):
        value = rng.choice(middles)
        for _ in range(rng.randint(0, flips)):
            value ^= 1 << rng.randrange(256)
        hashes.append(value.to_bytes(32))
    assert clusters(b"".join(hashes)) == slow(hashes)


def test_a_large_crowd_is_one_cluster() -> None:
    rng = random.Random(0)
    hashes = b"".join((1 << rng.randrange(256)).to_bytes(32) for _ in range(20_000))
    (found,) = clusters(hashes)
    assert len(found) == 20_000


def test_nothing_has_no_clusters() -> None:
    assert clusters(b"") == []
    assert clusters(bytes(32)) == []
    assert clusters(bytes(64)) == [[0, 1]]
