"""docs/explanation/one-job.md: from YAML to a result, in the order in which the functions are called first."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support import first_calls

PAGE: Final = first_calls.ROOT / "docs/explanation/one-job.md"
LAUNCHER: Final = Path(sys.executable).with_name("launcher")
# section of the page -> the program whose calls it lists, named by its first function
PROGRAMS: Final = {
    "The command": "launcher/cli/process.py:begin",
    "The supervisor": "launcher/backends/local/supervisor/process.py:_supervise",
    "The runtime": "launcher/runtime/run.py:main",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[list[str]]]:
    """The calls of each process of `launcher submit examples/hello`, and of what it starts."""
    folder = tmp_path_factory.mktemp("job")
    shutil.copytree(first_calls.ROOT / "examples/hello", folder / "hello")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLIPWAY_", "XDG_"))}
    environ = {**kept, "HOME": str(folder), **first_calls.environment(folder / "calls")}
    words = [LAUNCHER, "submit", "hello", "--backend", "local", "--follow"]
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=250)
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        yield first_calls.processes(folder / "calls")
    finally:
        subprocess.run([LAUNCHER, "local", "stop"], cwd=folder, env=environ, check=True, capture_output=True)


@pytest.mark.parametrize("section", PROGRAMS)
def test_the_page_names_the_functions_in_their_order(section: str, programs: list[list[str]]) -> None:
    named = first_calls.listed(PAGE, section)
    calls = next(calls for calls in programs if PROGRAMS[section] in calls)
    assert len(named) >= 3
    assert first_calls.in_order(calls, named) == named


def test_a_submit_enters_few_files(programs: list[list[str]]) -> None:
    """What somebody opens who follows a submit through the code; a comprehension of a module's own is no step of it."""
    calls = next(calls for calls in programs if PROGRAMS["The command"] in calls)
    submit = itertools.takewhile(lambda call: not call.startswith("launcher/cli/printing/follow.py:"), calls)
    names = [call.partition(":") for call in submit if not call.rpartition(".")[2].startswith("<")]
    assert 40 < len({file for file, _, _ in names if file.startswith("launcher/")}) <= 70


def test_the_page_lists_at_most_fifteen_steps_and_every_program() -> None:
    assert 0 < len(first_calls.listed(PAGE)) == sum(len(first_calls.listed(PAGE, name)) for name in PROGRAMS) <= 15
