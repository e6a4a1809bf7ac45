"""What looks alike is found by an index: the groups are those of comparing each with each, by few comparisons."""

from __future__ import annotations

import random

import numpy as np
import pytest

from training.data.pairs.check import Components
from training.data.similar_images import HASH, ThumbnailIndex, Thumbnails

SIZES = ((640, 480),)


def screens(seed: int, count: int, *, origins: int, noise: int) -> list[Thumbnails]:
    """Frames of `origins` different screens, each with up to `noise` of its cells changed."""
    rng = np.random.default_rng(seed)
    plain = rng.integers(0, 256, (origins, HASH, HASH + 1)).astype(np.int16)
    plain[:, :, 4:] = 240  # most of a screen is one colour
    looks = []
    for number in range(count):
        small = plain[number % origins].copy()
        for _ in range(rng.integers(0, noise + 1)):
            small[tuple(rng.integers(0, (HASH, HASH + 1)))] += rng.integers(-30, 31)
        looks.append(Thumbnails(SIZES, small[None]))
    return looks


def by_index(looks: list[Thumbnails]) -> list[str]:
    groups = Components()
    index = ThumbnailIndex(groups.find)
    for number, look in enumerate(looks):
        for other in index.near("the same", name := f"{number:05}", look):
            groups.join(name, other)
        index.add("the same", name, look)
    return [groups.find(f"{number:05}") for number in range(len(looks))]


def by_all_pairs(looks: list[Thumbnails]) -> list[str]:
    groups = Components()
    for number, look in enumerate(looks):
        for before in range(number):
            if look.alike(looks[before]):
                groups.join(f"{number:05}", f"{before:05}")
    return [groups.find(f"{number:05}") for number in range(len(looks))]


@pytest.mark.parametrize("seed", range(8))
def test_the_groups_are_those_of_comparing_each_with_each(seed: int) -> None:
    rng = random.Random(seed)
    looks = screens(seed, 60, origins=rng.choice((1, 3, 20)), noise=rng.choice((0, 3, 12)))
    assert by_index(looks) == by_all_pairs(looks)


def test_what_has_no_frame_is_alike_and_other_sizes_are_not() -> None:
    bare = Thumbnails((), np.empty((0, HASH, HASH + 1), np.int16))
    (seen,) = screens(0, 1, origins=1, noise=0)
    other = Thumbnails(((480, 640),), seen.small)
    assert by_index([bare, seen, bare, other, seen]) == ["00000", "00001", "00000", "00003", "00001"]


@pytest.mark.parametrize("size", [1000, 4000])
def test_each_is_compared_with_a_few(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    alike = Thumbnails.alike

    def counted(one: Thumbnails, other: Thumbnails) -> bool:
        nonlocal count
        count += 1
        return alike(one, other)

    monkeypatch.setattr(Thumbnails, "alike", counted)
    by_index(screens(1, size, origins=size // 4, noise=6))
    assert count < 10 * size  # each with each would be size * (size - 1) / 2
