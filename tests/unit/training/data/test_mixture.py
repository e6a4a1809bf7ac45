"""Mixtures: the shares are exact, every stretch has them, and a cycled source comes in another order."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.data.mixture import Mixture, apportion, interleave, permuted

WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=6)


@settings(deadline=None)
@given(st.integers(0, 500), WEIGHTS)
def test_shares_add_up_and_are_within_one_of_exact(total: int, weights: list[float]) -> None:
    counts = apportion(total, weights)
    assert sum(counts) == total
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - total * weight / math.fsum(weights)) < 1 + 1e-6


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_every_beginning_has_nearly_the_shares_of_the_whole(counts: list[int]) -> None:
    owners = interleave(counts).tolist()
    assert Counter(owners) == Counter({i: count for i, count in enumerate(counts) if count})
    total, taken = sum(counts), Counter[int]()
    for place, owner in enumerate(owners, 1):
        taken[owner] += 1
        for number, count in enumerate(counts):
            share = count / total
            assert abs(taken[number] - place * share) <= 0.5 + share * len(counts) / 2 + 1e-9


@settings(deadline=None)
@given(st.integers(1, 300), st.binary(min_size=1, max_size=20))
def test_permuted_is_a_permutation(size: int, key: bytes) -> None:
    assert sorted(permuted(i, size, key) for i in range(size)) == list(range(size))


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.data(),
    st.integers(0, 2**40),
    st.one_of(st.none(), st.integers(1, 300)),
)
def test_a_mixture_follows_its_weights_and_uses_each_item_equally_often(
    sizes: list[int], data: st.DataObject, seed: int, length: int | None
) -> None:
    weights = [data.draw(st.floats(0.1, 5)) for _ in sizes]
    sources = [[(number, item) for item in range(size)] for number, size in enumerate(sizes)]
    mixture = Mixture(sources, weights, seed=seed, length=length)
    if length is None:
        assert len(mixture) == max(1, round(sizes[0] * math.fsum(weights) / weights[0]))
    else:
        assert len(mixture) == length
    items = list(mixture)
    assert items == list(Mixture(sources, weights, seed=seed, length=length))
    per_source = Counter(number for number, _ in items)
    assert [per_source[i] for i in range(len(sizes))] == apportion(len(mixture), weights)
    for number, size in enumerate(sizes):
        uses = Counter(item for n, item in items if n == number)
        assert max(uses[i] for i in range(size)) - min(uses[i] for i in range(size)) <= 1


def test_a_source_that_starts_over_does_so_in_another_order() -> None:
    mixture = Mixture([list(range(50))], [1.0], length=150)
    first, second, third = (mixture[start : start + 50] for start in (0, 50, 100))
    assert sorted(first) == sorted(second) == sorted(third) == list(range(50))
    assert list(first) != list(range(50))
    assert first != second != third != first


def test_another_seed_is_another_order() -> None:
    assert list(Mixture([range(50)], [1.0], seed=1)) != list(Mixture([range(50)], [1.0], seed=2))


def test_a_mixture_of_nothing_is_refused() -> None:
    for sources, weights in (([], []), ([[]], [1.0]), ([[1]], [1.0, 2.0])):
        with pytest.raises(ValueError, match="sources that hold something"):
            Mixture(sources, weights)


def test_a_larger_source_gives_its_next_part_in_each_epoch() -> None:
    small, large = [("small", item) for item in range(100)], [("large", item) for item in range(1000)]
    mixture = Mixture([small, large], [1.0, 1.0], seed=3)
    epochs = [[mixture[epoch * len(mixture) + at] for at in range(len(mixture))] for epoch in range(20)]
    assert epochs[0] == list(mixture)
    taken = [{item for name, item in epoch if name == "large"} for epoch in epochs]
    assert [len(part) for part in taken] == [100] * 20
    assert set().union(*taken[:10]) == set().union(*taken[10:]) == set(range(1000))  # ten epochs take each once
    for epoch in epochs:
        assert sorted(item for name, item in epoch if name == "small") == list(range(100))
