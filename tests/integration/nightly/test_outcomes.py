"""The file of outcomes: what each test took, its processes included, and what collecting took."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import outcomes

TESTS = """
import subprocess, sys, time
SPIN = "import time\\nend = time.process_time() + {}\\nwhile time.process_time() < end: pass"
def test_in_this_process(): exec(SPIN.format(.3))
def test_in_another(): subprocess.run([sys.executable, "-c", SPIN.format(.5)], check=True)
def test_nothing(): pass
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_core_seconds_are_those_of_a_test_and_of_its_processes(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    file = tmp_path / "outcomes.jsonl"
    options = ["-q", "-n", workers, "-p", "tests.support.outcomes", "--outcomes", str(file)]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    assert outcomes.slowness(outcomes.read(file).values()) > 0.2  # measured, on any machine
    assert any(one.loop for one in outcomes.read(file).values())
    cpu = {one.test.rpartition("::")[2]: one.cpu for one in outcomes.read(file).values()}
    assert cpu["test_in_this_process"] >= 0.3
    assert cpu["test_in_another"] >= 0.5
    assert cpu["test_nothing"] < 0.25
    found = outcomes.collecting(file)
    assert [one.collected for one in found] == [3] * max(1, int(workers))
    assert all(one.cpu > 0 and one.megabytes > 10 for one in found)


def test_without_a_cgroup_processes_that_were_waited_for_are_counted(tmp_path: Path) -> None:
    account = outcomes.Account(tmp_path / "no-such-controller")
    before = account.spent()
    spin = "import time\nwhile time.process_time() < .3: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert account.spent() - before >= 0.3
    account.close()
