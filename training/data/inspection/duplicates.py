"""Finds near-duplicate images by their perceptual hashes, without comparing all pairs."""

from __future__ import annotations

from typing import Any, Final

from training.data.similar_images import BANDS, DISTANCE

NEIGHBOURS: Final = 32  # comparisons per hash within a bucket


def clusters(hashes: bytes | bytearray) -> list[list[int]]:
    """Groups of at least two images, each within DISTANCE bits of another in its group; the largest first.

    hashes   32 bytes per image, concatenated

    Images whose hashes agree in one of 8 bands of 32 bits share a bucket. In each bucket, sorted by hash, an image is
    compared with the next NEIGHBOURS. So the work is n log n, and in a very large bucket a pair may be missed.
    """
    import numpy as np

    if not hashes:
        return []
    packed = np.frombuffer(bytes(hashes), np.uint8).reshape(-1, 32)
    unique, inverse = np.unique(packed, axis=0, return_inverse=True)
    words = unique.view(">u4").astype(np.uint32)  # (n, BANDS)
    long = unique.view(np.uint64)  # (n, 4)
    roots = np.arange(len(unique))
    for band in range(BANDS):
        order = np.lexsort([words[:, i] for i in range(BANDS - 1, -1, -1) if i != band] + [words[:, band]])
        for shift in range(1, min(NEIGHBOURS, len(order) - 1) + 1):
            one, other = order[:-shift], order[shift:]
            same = words[one, band] == words[other, band]
            if not same.any():
                break
            one, other = one[same], other[same]
            bits = np.bitwise_count(long[one] ^ long[other]).sum(axis=1)
            near = (bits <= DISTANCE) & (roots[one] != roots[other])
            roots = _joined(roots, one[near], other[near])
    labels = roots[inverse.reshape(-1)]
    order = np.argsort(labels, kind="stable")
    edges = np.flatnonzero(np.diff(labels[order])) + 1
    parts = [part.tolist() for part in np.split(order, edges) if len(part) > 1]
    return sorted(parts, key=lambda part: (-len(part), part[0]))


def _joined(roots: Any, ones: Any, others: Any) -> Any:
    """The root of each image after joining these pairs."""

    def root(at: int) -> int:
        while roots[at] != at:
            roots[at] = roots[roots[at]]  # halves the path for the next time
            at = roots[at]
        return at

    for left, right in zip(ones.tolist(), others.tolist(), strict=True):
        a, b = root(left), root(right)
        if a != b:
            roots[max(a, b)] = min(a, b)
    while (roots[roots] != roots).any():
        roots = roots[roots]
    return roots
