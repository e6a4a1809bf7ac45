"""A server of adb for these tests, and phones that it knows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.android.adbd import Adbd
from tests.support.android.serving import adb_server, phones


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    with adb_server():
        yield


@pytest.fixture
def adbd(server: None) -> Iterator[Adbd]:
    """One phone that is ready."""
    with phones(1) as (found,):
        yield found
