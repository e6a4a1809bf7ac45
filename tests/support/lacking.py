"""What a test needs and this machine lacks."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """Skips the test; `what` names what is missing and the command that installs it. In CI it fails."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)
