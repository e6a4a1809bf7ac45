from __future__ import annotations

import pytest

from tests.contract.environment.worlds import with_worlds, world

__all__ = ["world"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    with_worlds(metafunc, programs=True)
