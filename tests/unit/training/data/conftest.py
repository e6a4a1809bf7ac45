from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def datasets_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What `datasets` makes of Parquet files does not stay on this machine."""
    import datasets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("datasets")))
        yield


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 12 episodes of the login form."""
    from tests.unit.training.material import episodes

    return episodes(tmp_path_factory.mktemp("folders"), 12)
