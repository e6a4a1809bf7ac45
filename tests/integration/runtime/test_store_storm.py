"""Runs behind late, doubled, cut and lost requests, killed at random (tests/integration/store_storm.py): some trials in
every CI run, many at night."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.integration.store_storm import SHOTS, storm
from tests.support.faultproxy import Kind
from tests.support.needs import lacking
from tests.support.s3 import S3Server


@pytest.mark.s3
@pytest.mark.parametrize("trials", [6, pytest.param(300, marks=[pytest.mark.nightly, pytest.mark.alone])])
@pytest.mark.timeout(3600)
def test_storm(s3_server: S3Server, tmp_path: Path, trials: int) -> None:
    if not s3_server.real:
        lacking("versitygw")
    seed = int(os.environ.get("SLIPWAY_STORM_SEED") or random.SystemRandom().randrange(1 << 32))
    tally = storm(s3_server, trials, seed, tmp_path)
    print(f"seed {seed}\n{tally.table()}")
    assert not tally.problems, f"{tally.explain()}\nseed {seed} (SLIPWAY_STORM_SEED)\n{tally.table()}"
    assert tally.trials == trials
    assert tally.commands >= trials
    # a storm that does nothing proves nothing; how many shots come too late depends on the machine
    assert sum(tally.kills.values()) >= SHOTS * trials // 2
    assert set(tally.faults) >= {Kind.LATE, Kind.DOUBLE, Kind.DROP_BEFORE, Kind.DROP_AFTER, Kind.CUT_BODY, Kind.LAG}
