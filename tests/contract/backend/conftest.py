"""Every test of this folder runs once for each backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.backend.harness import HARNESSES, Harness
from tests.support.engine import engine

__all__ = ["engine", "harness"]


@pytest.fixture(params=sorted(HARNESSES))
def harness(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    with HARNESSES[request.param](request, tmp_path, monkeypatch) as made:
        yield made
