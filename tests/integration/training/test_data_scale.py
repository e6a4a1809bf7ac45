"""Memory does not grow with the data: whole processes, mapped pages included. The figures are tests.bench.data's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
MB = 2000  # issue 5


def part(what: str, folder: Path, steps: int) -> Any:
    environment = {
        **os.environ,
        "SLIPWAY_BENCH_STEPS": str(steps),
        "HF_DATASETS_CACHE": str(folder.parent / "cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.bench.data", what, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True, timeout=1800)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.nightly
@pytest.mark.ml
def test_twenty_thousand_steps_take_little_memory(tmp_path: Path) -> None:
    folder = tmp_path / "dataset"
    for what, most in (("generate", 230), ("read", 280)):  # MB; what the libraries take without any data: 140, 170
        assert part(what, folder, 20_000)["peak"] < most


@pytest.mark.ml
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_million_steps_stay_under_two_gigabytes(tmp_path: Path) -> None:
    from training.tiny import TinyConfig, build

    build(TinyConfig(), tmp_path / "model")
    folder = tmp_path / "dataset"
    wrote, read, batches = (part(what, folder, 1_000_000) for what in ("generate", "read", "batches"))
    print(f"\npeaks in MB: written {wrote['peak']:.0f}, read at random {read['peak']:.0f}", end="")
    assert max(wrote["peak"], read["peak"]) < MB
    for workers in ("0", "1", "2", "4"):
        print(f", with a collator and {workers} workers {batches[workers]['memory']:.0f}", end="")
        assert batches[workers]["memory"] < MB
    print()
