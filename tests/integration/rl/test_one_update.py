"""docs/explanation/one-update.md: the stages of a training step, in the order in which the trainer runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.rl.conftest import rl_config
from tests.support import first_calls
from training.rl.train import train

pytestmark = pytest.mark.ml
PAGE = first_calls.ROOT / "docs/explanation/one-update.md"


def test_the_page_names_the_functions_in_their_order(start: Path, tmp_path: Path) -> None:
    config = rl_config(start, steps=1)
    with first_calls.recorded() as calls:
        assert train(config, tmp_path / "out", None)
    named = first_calls.listed(PAGE)
    assert len(named) > 12
    assert first_calls.in_order(calls, named) == named
