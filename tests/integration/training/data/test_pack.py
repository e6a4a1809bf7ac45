"""Packing: everything is there once, the marker comes last, and what is broken is told or counted."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from eval.config import ConfigError
from tests.unit.training.data.material import episode, png, write_folders
from tests.unit.training.material import episodes
from training.data.packed.pack import PackConfig, pack
from training.data.packed.store import parts, read_manifest
from training.data.packed.writer import SCRATCH

ROOT = Path(__file__).parents[4]


def test_killed_half_way_it_leaves_no_dataset_and_the_next_try_makes_the_same(tmp_path: Path) -> None:
    """The process is killed while it waits for an episode: a FIFO stands for the frame that never comes."""
    folders = episodes(tmp_path / "folders", 12)
    root = tmp_path / "in"
    root.mkdir()
    for folder in folders.iterdir():
        (root / folder.name).symlink_to(folder)
    stuck = write_folders(tmp_path / "stuck", [episode(0)]) / "episode-0"
    frame = stuck / "002.png"
    saved = frame.read_bytes()
    frame.unlink()
    os.mkfifo(frame)
    (root / "zzz").symlink_to(stuck)
    config = tmp_path / "pack.yaml"
    config.write_text(yaml.safe_dump({"episodes": [str(root)]}))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "training.data", "pack", "--config", str(config), "--out", str(out)]
    # the FIFO opens once the other side reads: all the rest is written
    with subprocess.Popen(command, cwd=ROOT) as process, frame.open("wb"):
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert not (out / "dataset.json").exists()
    assert (out / SCRATCH).exists()
    with pytest.raises(ConfigError, match="No such file"):
        read_manifest(out)
    frame.unlink()
    frame.write_bytes(saved)
    again = pack(PackConfig(episodes=[str(root)]), out)
    other = pack(PackConfig(episodes=[str(root)]), tmp_path / "other")
    assert [part.sha256 for part in parts(again)] == [part.sha256 for part in parts(other)]
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in (tmp_path / "other").iterdir())


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """No file may grow beyond 64 KiB, which the system reports as an error of the write."""
    frames = [png(index, (100, 100)) for index in range(5)]
    root = write_folders(tmp_path / "in", [episode(0, 4, frames=frames)])
    config = tmp_path / "pack.yaml"
    config.write_text(yaml.safe_dump({"episodes": [str(root)]}))
    command = [sys.executable, "-m", "training.data", "pack", "--config", str(config), "--out", str(tmp_path / "out")]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=limit, timeout=60)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not any((tmp_path / "out").iterdir())
