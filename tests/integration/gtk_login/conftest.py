"""Tests on real desktops with GTK 3."""

from __future__ import annotations

import pytest

from eval.benchmarks.gtk_login import environment as gtk_login
from eval.config import ConfigError
from tests.support.desktops import need_desktops
from tests.support.needs import lacking


@pytest.fixture(autouse=True)
def _desktops() -> None:
    need_desktops()
    try:
        gtk_login.desktop({})
    except ConfigError as error:
        lacking("desktop", str(error))
