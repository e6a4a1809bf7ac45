"""What the gate keeps out, how splits are drawn, and what a reader of the folder refuses."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from eval.actions.dialects.dsl import Dsl
from tests.unit.training.data.test_pairs_check import _read
from tests.unit.training.data.tries import FAR, HIT, NOTHING, PROMPT, episode
from training.data.faults import Faults
from training.data.pairs.check import Gate
from training.data.pairs.maker import Maker, ObservedStep
from training.data.pairs.store import Pair, PictureStore, publish, read_pairs
from training.data.samples import open_image


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder of two pairs with the same picture."""
    folder = tmp_path / ".tmp"
    at = ObservedStep(*_read(episode(tmp_path / "seen", "one", [HIT])), 0)
    again = ObservedStep(*_read(episode(tmp_path / "seen", "two", [HIT], task="two")), 0)
    faults = Faults()
    one = Gate(folder, Dsl(2), faults)
    maker = Maker(PROMPT.builder(), PictureStore(folder), one, faults)
    maker.pair(at, HIT, FAR, "human")
    maker.pair(again, HIT, NOTHING, "human")
    publish(folder, tmp_path / "pairs", one.close())
    return tmp_path / "pairs"


def test_a_folder_reads_back_with_its_pictures_once(made: Path) -> None:
    found = read_pairs(made)
    assert [p.task_id for p in found] == ["task", "two"]
    assert len(list((made / "images").iterdir())) == 1
    assert found[-1] == found[1] == _in_a_worker(found)
    assert [p.task_id for p in found[1:]] == ["two"]
    (path,) = found.images(found[0])
    assert open_image(path).size == (16, 16)
    assert found[0].split_key == found[1].split_key  # they share their picture


def _in_a_worker(found: Any) -> Pair:
    """As a loader's worker reads it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(found.__getitem__, (1,))  # type: ignore[no-any-return]
