"""The collator gives TRL's batches, bit for bit; bad samples are told, and replaced the same way everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training.material import PROMPT, episodes, model
from tests.unit.training.test_collate import assert_equal, rows
from training.common.model.loading import load_processor
from training.data import samples
from training.sft.collate import Collator

pytestmark = pytest.mark.ml


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(episodes, model)"""
    root = tmp_path_factory.mktemp("collate")
    folder = episodes(root)
    return folder, model(root / "model", folder)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.nightly)])
def test_workers_give_the_same_batches(material: tuple[Path, Path], method: str) -> None:
    from torch.utils.data import DataLoader

    found = samples.load(material[0], PROMPT.builder())
    collate = Collator(load_processor(str(material[1])), found)
    batches = [[0, 1, 2], [3, 4], [5, 0], [1, 5, 2]]
    data = rows(range(len(found)))
    loader = DataLoader(data, batch_sampler=batches, collate_fn=collate, num_workers=2, multiprocessing_context=method)  # type: ignore[arg-type, var-annotated]
    for indices, batch in zip(batches, loader, strict=True):
        assert_equal(batch, collate(rows(indices)))
