"""A store that takes no more: full, out of inodes, read-only. The run goes on, its status says why one hears nothing,
and afterwards it is as if nothing had been. Needs root, to mount a small file system."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.errors import Unreachable
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.spec.model import Limits, ResolvedJob, Timing
from launcher.verbs.status import Line, read_line
from tests.integration.local.machine import Machine, machine
from tests.support.mounts import small_file_system
from tests.support.waiting import until

WAITS = """
print("up", E["SLIPWAY_ATTEMPT"], flush=True)
say("up", E["SLIPWAY_ATTEMPT"])
while not (here / "go").exists():
    time.sleep(0.05)
"""
PATIENT = Timing(beat=0.2, stale=120.0, fence=60.0)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB and 200 files."""
    with small_file_system(tmp_path / "small", "size=1m,nr_inodes=200"):
        yield tmp_path / "small"


@pytest.fixture
def here(tmp_path: Path, small: Path) -> Iterator[Machine]:
    with machine(tmp_path, (small / "store").as_uri()) as made:
        yield made


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)


def fill(folder: Path) -> Callable[[], None]:
    """No byte is left; gives what undoes it."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return (folder / "filler").unlink


def use_inodes(folder: Path) -> Callable[[], None]:
    made: list[Path] = []
    with contextlib.suppress(OSError):
        while True:
            path = folder / f"filler-{len(made)}"
            path.touch(exist_ok=False)
            made.append(path)
    return lambda: [path.unlink() for path in made] and None


def make_read_only(folder: Path) -> Callable[[], None]:
    remount(folder, "ro")
    return lambda: remount(folder, "rw")


def line(here: Machine, one: ResolvedJob) -> Line:
    return read_line(here.store, run_id(one), lambda job: here.backend)[1]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (fill, "No space left on device"),
        (use_inodes, "No space left on device"),
        (make_read_only, "Read-only file system"),
    ],
)
def test_the_status_of_a_run_says_that_its_store_takes_no_more(
    here: Machine, small: Path, spoil: Callable[[Path], Callable[[], None]], says: str
) -> None:
    one = here.job("one", WAITS, timing=PATIENT)
    here.submit(one)
    until(lambda: here.lines("up"), here.explain)
    undo = spoil(small)
    until(lambda: line(here, one).reason == Reason.STORE_UNREACHABLE, here.explain)
    told = line(here, one)
    assert says in told.detail
    assert not told.final
    undo()
    until(lambda: not line(here, one).reason, here.explain)
    (here.path / "go").touch()
    (result,) = here.wait(one)
    assert (result.outcome, result.attempt) == ("succeeded", 1)


def test_a_store_that_is_full_for_longer_than_the_fence_costs_an_attempt_and_no_run(here: Machine, small: Path) -> None:
    one = here.job("one", WAITS, timing=Timing(beat=0.2, stale=3.0, fence=1.5), limits=Limits(grace=0.5))
    here.submit(one)
    until(lambda: here.lines("up"), here.explain)
    undo = fill(small)
    told = "store_unreachable: no beat reached the store for"
    outputs = here.state.path / "runs" / run_id(one) / "main-0"

    def ended() -> bool:
        return any(told in path.read_text() for path in outputs.glob("*.log"))

    until(ended, here.explain)
    text = "".join(path.read_text() for path in outputs.glob("*.log"))
    assert "No space left on device" in text.partition(told)[2].partition("\n")[0]
    until(lambda: line(here, one).reason == Reason.STORE_UNREACHABLE, here.explain)
    assert "No space left on device" in line(here, one).detail
    undo()
    (here.path / "go").touch()
    (result,) = here.wait(one)
    assert (result.outcome, result.attempt) == ("succeeded", 2)


def test_a_submit_to_a_full_store_is_one_line(here: Machine, small: Path) -> None:
    undo = fill(small)
    with pytest.raises(Unreachable, match="No space left on device"):
        here.submit(here.job("one", "pass"))
    undo()


def test_a_full_disk_of_the_launcher_is_named(small: Path, tmp_path: Path) -> None:
    """A write to a full disk says of itself which file it was for: of no use to whoever has three disks."""
    (tmp_path / "job.yaml").write_text("name: a\nimage: slipway-cpu\ncommand: ['true']\nlimits: {deadline: 1m}\n")
    (small / "state" / "slipway").mkdir(parents=True)
    fill(small)
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(small / "state")}
    words = ["submit", "job.yaml", "--backend", "local", "--store", (tmp_path / "store").as_uri()]
    command = [sys.executable, "-m", "launcher.cli", *words]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "No space left on device" in line]
    assert line.startswith(f"launcher submit: {small}/state/slipway/"), line
