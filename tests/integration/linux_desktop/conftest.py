"""Tests on real desktops."""

from __future__ import annotations

import pytest

from tests.support.desktops import need_desktops


@pytest.fixture(autouse=True)
def _desktops() -> None:
    need_desktops()
