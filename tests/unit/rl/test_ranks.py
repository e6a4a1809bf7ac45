"""Rows of the loss on several processes: each is on one of them, and all do the same at the same time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.rl.asynchronous.rollouts import outside_torchrun
from training.rl.learning.ranks import part, passes

pytestmark = pytest.mark.ml


@given(st.integers(0, 60), st.integers(1, 9))
def test_parts_are_all_items_in_their_order_and_even(items: int, count: int) -> None:
    parts = [part(range(items), rank, count) for rank in range(count)]
    assert [item for each in parts for item in each] == list(range(items))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 12))
def test_all_processes_have_passes_of_the_same_shape_and_each_item_counts_once(
    items: int, count: int, size: int
) -> None:
    made = [passes(range(items), rank, count, size) for rank in range(count)]
    shapes = {tuple(len(some) for some, _ in each) for each in made}
    assert len(shapes) == 1
    (shape,) = shapes
    assert 1 <= min(shape) <= max(shape) <= size
    assert len(shape) == math.ceil(math.ceil(items / count) / size)  # no more than the longest part needs
    counted = [item for each in made for some, counting in each for item in some[:counting]]
    assert counted == list(range(items))
    for each in made:  # what counts for nothing comes last: lines of a part are cut there
        assert all(counting == len(some) for some, counting in each[:-1])


def test_by_hand() -> None:
    """Five rows on two processes, two at a time: 2 and 3 rows, so two passes each, of 1 and 2 rows."""
    assert passes("abcde", 0, 2, 2) == [(["a"], 1), (["b", "a"], 1)]
    assert passes("abcde", 1, 2, 2) == [(["c"], 1), (["d", "e"], 2)]


def test_a_worker_is_none_of_torchruns_processes() -> None:
    """The variables that torchrun's page lists, those of accelerate and FSDP, and the runtime's for torchrun."""
    told = (
        *("LOCAL_RANK", "RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "LOCAL_WORLD_SIZE", "WORLD_SIZE"),
        *("GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"),
        *("TORCHELASTIC_RUN_ID", "PET_NNODES", "ACCELERATE_USE_FSDP", "FSDP_VERSION"),
    )
    kept = {"PATH": "/bin", "SLIPWAY_RANK": "0", "CUDA_VISIBLE_DEVICES": "3", "OMP_NUM_THREADS": "1"}
    assert outside_torchrun({**dict.fromkeys(told, "1"), **kept}) == kept
