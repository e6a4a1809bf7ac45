"""A folder store that goes away under a run: moved, deleted or unmounted. Nobody may make an empty one in its place."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.errors import Unreachable
from launcher.reasons import Reason
from launcher.spec.hashing import encode_job
from launcher.spec.model import Limits, Timing
from launcher.store.layout import MARKER
from launcher.store.opening import make_store, open_store
from tests.integration.runtime.rig import Rig, until
from tests.support.mounts import small_file_system

TIMING = Timing(beat=0.2, stale=60.0, fence=30.0)
WAITS = ("sh", "-c", "echo up $SLIPWAY_ATTEMPT; until [ -e go ]; do sleep 0.05; done")


def go(rig: Rig) -> None:
    (rig.root / "work" / "main-0" / "work" / "go").touch()


def said(rig: Rig, text: str, times: int = 1) -> bool:
    return (rig.root / "main-0.out").read_text().count(text) >= times


def beats(rig: Rig) -> int:
    return rig.view().attempts[0].beats["main-0"][0].seq


def test_a_store_moved_away_and_back_is_the_same_run(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, WAITS, timing=TIMING)
    process = rig.start()
    until(lambda: b"up 1\n" in rig.log())
    store, aside = tmp_path / "store", tmp_path / "aside"
    store.rename(aside)
    until(lambda: said(rig, "the folder is not there"))
    assert not store.exists()
    aside.rename(store)
    seq = beats(rig)
    until(lambda: beats(rig) > seq + 1)
    go(rig)
    assert process.wait(60) == 0
    assert len(rig.view().attempts) == 1


def test_a_runtime_that_starts_while_the_store_is_away_waits_for_it(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, WAITS, timing=TIMING)
    rig.store.create(rig.keys.job, encode_job(rig.job))
    store, aside = tmp_path / "store", tmp_path / "aside"
    store.rename(aside)
    store.mkdir()  # as a mount point looks that nothing is mounted on
    process = rig.start()
    until(lambda: said(rig, "the folder is empty"))
    assert not list(store.iterdir())
    store.rmdir()
    aside.rename(store)
    until(lambda: b"up 1\n" in rig.log())
    go(rig)
    assert process.wait(60) == 0


def test_a_deleted_store_ends_the_command_at_the_fence_and_is_not_made_anew(tmp_path: Path) -> None:
    timing = Timing(beat=0.2, stale=4.0, fence=1.0)
    rig = Rig.of(tmp_path, WAITS, timing=timing, limits=Limits(grace=0.3))
    process = rig.start()
    until(lambda: b"up 1\n" in rig.log())
    (tmp_path / "store").rename(tmp_path / "deleted")  # at once: the runtime writes into it meanwhile
    shutil.rmtree(tmp_path / "deleted")
    assert process.wait(60) == 75
    assert rig.start().wait(60) == 75  # and so does the next, which its supervisor starts
    assert said(rig, f"{Reason.STORE_UNREACHABLE}: ")
    assert not said(rig, "up 2")
    assert not (tmp_path / "store").exists()


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file system of its own, which `umount` takes away."""
    with small_file_system(tmp_path / "store", "size=8m"):
        yield tmp_path / "store"


def test_an_unmounted_store_is_no_empty_store(tmp_path: Path, mounted: Path) -> None:
    rig = Rig.of(tmp_path, WAITS, timing=TIMING)
    process = rig.start()
    until(lambda: b"up 1\n" in rig.log())
    aside = tmp_path / "aside"
    aside.mkdir()
    for command in (["mount", "--bind", mounted, aside], ["umount", "-l", mounted]):
        subprocess.run(command, check=True)
    try:
        until(lambda: said(rig, "the folder is empty"))
        assert not list(mounted.iterdir())
        with pytest.raises(Unreachable, match="the folder is empty"):
            rig.view()
        subprocess.run(["mount", "--bind", aside, mounted], check=True)
        seq = beats(rig)
        until(lambda: beats(rig) > seq + 1)
        go(rig)
        assert process.wait(60) == 0
        assert len(rig.view().attempts) == 1
    finally:
        subprocess.run(["umount", "-l", aside], check=True)


def test_a_store_older_than_markers_is_accepted_and_gets_one(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("true",))
    rig.store.create(rig.keys.job, encode_job(rig.job))
    (tmp_path / "store" / MARKER).unlink()
    assert rig.go() == 0
    assert not (tmp_path / "store" / MARKER).exists()
    make_store(open_store(rig.job.store))
    made = (tmp_path / "store" / MARKER).read_bytes()
    make_store(open_store(rig.job.store))
    assert (tmp_path / "store" / MARKER).read_bytes() == made


def test_another_store_in_its_place_is_no_store_of_this_run_s(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("true",))
    seen = rig.store
    seen.create(rig.keys.job, encode_job(rig.job))
    (tmp_path / "store").rename(tmp_path / "aside")
    make_store(open_store(rig.job.store))
    with pytest.raises(Unreachable, match="another store"):
        seen.read(rig.keys.result)
