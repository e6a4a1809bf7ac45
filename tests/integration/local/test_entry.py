"""Queue entries: what is rendered is what is read back, whatever texts a job holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.backends.base import backend
from launcher.backends.local.entry import render
from launcher.spec.hashing import run_id
from tests.support.jobs import changed, job


def test_render_is_pure(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same bytes in another process, folder, environment and order of keys; nothing is touched."""
    state = tmp_path_factory.mktemp("state") / "not-made"
    jobs = [job("a", config={"x": 1, "é": [1.5]}), job("b", labels={"k": "v"})]
    made = backend("local", {"state": state}).render(jobs)
    script = (
        "import json; from tests.support.jobs import job; from launcher.backends.base import backend;"
        "jobs = [job('a', config={'é': [1.5], 'x': 1}), job('b', labels={'k': 'v'})];"
        "print(json.dumps(dict(backend('local', {'state': '/elsewhere'}).render(jobs).documents)))"
    )
    import json

    said = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), "TZ": "Asia/Tokyo", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(said.stdout) == dict(made.documents)
    assert not state.exists()
    assert set(made.objects) == {run_id(one) for one in jobs}
    assert made == render([changed(one) for one in jobs])
