"""The examples, rendered: byte for byte what is in golden/ (update: make golden)."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.unit.kubernetes.support import EXAMPLES, ROOT, written


def test_another_process_with_another_hash_seed_writes_the_same_bytes() -> None:
    code = (
        "from tests.unit.kubernetes.support import EXAMPLES, written\n"
        "for path in EXAMPLES: print(''.join(written(path).documents.values()), end='')"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].decode() == "".join("".join(written(path).documents.values()) for path in EXAMPLES)
