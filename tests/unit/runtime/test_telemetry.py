"""Metrics, progress and use of the machine; the kernel's count of kills."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.runtime.process.verdict import OutOfMemory
from launcher.runtime.secrets.masking import Masker
from launcher.runtime.uploads.spool import Spool
from launcher.runtime.uploads.telemetry import Metrics, Progress, read_progress


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool")
    yield spool
    spool.close()


def rows(spool: Spool) -> list[dict[str, object]]:
    return [json.loads(line) for line in spool.read(0, spool.size).splitlines()]


def test_good_lines_go_on_and_bad_ones_are_counted(tmp_path: Path, spool: Spool) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, spool, Masker(["s3cret"]))
    assert not metrics.poll()  # not there yet
    with path.open("w") as file:
        file.write('{"step": 1, "name": "loss", "value": 0.5, "time": 7}\nnot json\n[1]\n{"step": 2, "na')
        file.flush()
        metrics.poll()
        assert rows(spool) == [{"step": 1, "name": "loss", "value": 0.5, "time": 7.0}]
        file.write('me": "a s3cret", "value": NaN, "time": 8}\n{"step": 3, "name": "x", "value": "high"}\n')
        file.write('{"step": 3, "name": "end", "value": 1, "time": 9}')
    metrics.finish()
    assert rows(spool)[1:] == [
        {"step": 2, "name": "a ***", "value": None, "time": 8.0},
        {"step": 3, "name": "end", "value": 1.0, "time": 9.0},
    ]
    assert (metrics.bad, metrics.step) == (3, 3)


def test_an_endless_line_is_one_bad_line(tmp_path: Path, spool: Spool) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"x" * (3 << 20) + b'\n{"step": 1, "name": "loss", "value": 1, "time": 0}\n')
    metrics = Metrics(path, spool, Masker())
    metrics.finish()
    assert metrics.bad == 1
    assert len(rows(spool)) == 1


def test_progress_is_the_last_line_that_reads(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    assert read_progress(path, Masker()) is None
    path.write_text('{"step": 1, "total": 9}\n{"step": 2, "total": 9, "phase": "train", "message": "s3cret"}\n{"st')
    assert read_progress(path, Masker(["s3cret"])) == Progress(2.0, 9.0, "train", "***")
    path.write_text('{"step": "two"}\n')
    assert read_progress(path, Masker()) == Progress()


@pytest.mark.parametrize(
    ("group", "file"),
    [
        ("0::/pod/a", "pod/a/memory.events"),
        ("0::/pod/a", "memory.events"),
        ("9:name=systemd:/\n4:memory:/pod/a\n0::/", "memory/pod/a/memory.oom_control"),
        ("4:memory:/pod/a", "memory/memory.oom_control"),
        ("3:cpuset:/", "../proc/vmstat"),
    ],
)
def test_kills_for_memory_are_counted_from_the_start(tmp_path: Path, group: str, file: str) -> None:
    proc, sys_ = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    sys_.mkdir()
    (proc / "self/cgroup").write_text(group + "\n")
    counter = (sys_ / file).resolve()
    counter.parent.mkdir(parents=True, exist_ok=True)
    counter.write_text("low 0\noom 1\noom_kill 2\n")
    out_of_memory = OutOfMemory(proc, sys_)
    assert out_of_memory.kills() == 0
    counter.write_text("low 0\noom 2\noom_kill 3\n")
    assert out_of_memory.kills() == 1
    assert out_of_memory.shared == file.endswith("vmstat")
