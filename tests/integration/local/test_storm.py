"""Random kills (tests/integration/local_storm): some in every CI run, many at night."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.integration.local_storm import storm


def seed() -> int:
    given = os.environ.get("SLIPWAY_STORM_SEED")
    return int(given) if given else random.SystemRandom().randrange(1 << 32)


@pytest.mark.timeout(1800)
def test_ten_trials(tmp_path: Path) -> None:
    chosen = seed()
    tally = storm(10, chosen, tmp_path)
    print(f"seed {chosen}: {tally}")
    assert not tally.failures, f"seed {chosen} (SLIPWAY_STORM_SEED)\n" + "\n".join(tally.failures)
    assert tally.trials == 10
    assert sum(tally.kills.values()) >= 20


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(3600)
def test_three_hundred_trials(tmp_path: Path) -> None:
    chosen = seed()
    tally = storm(300, chosen, tmp_path)
    print(f"seed {chosen}: {tally}")
    assert not tally.failures, f"seed {chosen} (SLIPWAY_STORM_SEED)\n" + "\n".join(tally.failures)
