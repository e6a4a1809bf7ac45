from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.userdata.cache import Cache
from tests.support.receiver import Receiver, receiver


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store", sync=False)


@pytest.fixture
def slack() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache(tmp_path / "cache.sqlite") as made:
        yield made
