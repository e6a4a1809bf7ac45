"""A training's records: what the writer writes is what the launcher reads, whatever crashed in between."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.results import training_records as reading
from tests.support.documented import ROOT
from tests.unit.rl.test_records import EVERY_KIND, lines
from training.rl.records.record_writer import (
    RecordWriter,
)


@pytest.mark.parametrize("after", [1, 300])
def test_a_killed_writer_loses_no_line_that_it_wrote(tmp_path: Path, after: int) -> None:
    """SIGKILL while it writes: every line of which it told on its output is there."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom training.rl.records.record_writer import *\n"
        "writer = RecordWriter(Path(sys.argv[1]), piece=2000)\n"
        "for step in range(10**9):\n"
        "    writer.write(StepEntry(phase='train', step=step, metrics={}, time=0.0))\n"
        "    print(step, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(after)]
    os.kill(process.pid, signal.SIGKILL)
    told += [int(line) for line in process.stdout.read().splitlines() if line]
    process.stdout.close()
    process.wait()
    steps = [line.step for line in lines(tmp_path) if isinstance(line, reading.RlStep)]
    assert steps[: len(told)] == told
    assert steps == list(range(len(steps)))


def test_a_full_disk_leaves_half_a_line_at_the_end_of_a_piece_only(tmp_path: Path) -> None:
    """The system takes a part of a line and refuses the rest; later there is room again."""
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom training.rl.records.record_writer import *\n"
        "writer = RecordWriter(Path(sys.argv[1]))\nstep = 0\n"
        "def tell():\n"
        "    global step\n"
        "    writer.write(StepEntry(phase='train', step=step, metrics={}, time=0.0))\n"
        "    step += 1\n"
        "_, most = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))\n"
        "try:\n"
        "    while True: tell()\n"
        "except OSError as error:\n"
        "    print(error.errno)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))\n"
        "tell()\ntell()\nwriter.cut()\nprint(step)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    number, told = map(int, done.stdout.split())
    assert number == errno.EFBIG
    first = (tmp_path / "records" / "000001.jsonl").read_bytes()
    assert len(first) == 1000
    assert not first.endswith(b"\n")  # half a line
    assert [line.step for line in lines(tmp_path) if isinstance(line, reading.RlStep)] == list(range(told))


def test_reading_needs_neither_training_nor_eval_nor_torch(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        writer.write(*EVERY_KIND)
    program = (
        "import sys\nfrom pathlib import Path\nfrom launcher.results.training_records import read_folder\n"
        "print(len(read_folder(Path(sys.argv[1]))))\n"
        "print([name for name in ('training', 'eval', 'torch', 'trl') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == f"{len(EVERY_KIND)}\n[]\n"


def test_writing_needs_no_torch() -> None:
    program = (
        "import sys, training.rl.records.record_writer\n"
        "print([n for n in ('torch', 'trl', 'transformers') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"
