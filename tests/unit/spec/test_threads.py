"""The first job.json that a process reads may be read by several threads at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from launcher import decoding
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


def test_only_one_module_decodes_into_a_type() -> None:
    """Elsewhere a thread could be the first to decode a class while another is."""
    package = Path(decoding.__file__).parent
    calls = re.compile(r"\.decode\([^\n]*type=|(json|msgpack)\.Decoder\(")
    found = {str(file.relative_to(package)) for file in package.rglob("*.py") if calls.search(file.read_text())}
    at_import = "backends/kubernetes/objects.py"
    assert found == {"decoding.py", at_import}
