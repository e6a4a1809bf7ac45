"""The first job.json that a process reads may be read by several threads at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from launcher.spec.hashing import encode_job
from tests.support.jobs import job

# threads change places as often as they can: without care 13 of 20 such processes died of a segmentation fault
SCRIPT = """
import sys, threading
sys.setswitchinterval(1e-6)
from launcher.spec.hashing import decode_job
body = open(sys.argv[1], "rb").read()
gate = threading.Barrier(8)
def read():
    gate.wait()
    decode_job(body)
threads = [threading.Thread(target=read) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_threads_may_read_the_first_job_at_once(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_bytes(encode_job(job("one")))
    for _ in range(6):
        done = subprocess.run([sys.executable, "-c", SCRIPT, str(file)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
