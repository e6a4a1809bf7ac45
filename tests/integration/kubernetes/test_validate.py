"""Files: places, several documents, kustomize folders, and the verb. Everything we render or ship is sound."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.needs import need
from tests.unit.kubernetes.support import ROOT


def test_the_schemas_are_read_only_when_they_are_needed() -> None:
    checked = "import sys, launcher.backends.kubernetes.check.validate\n"
    checked += "heavy = {'jsonschema', 'kubernetes', 'boto3', 'obstore'} & set(sys.modules)\n"
    checked += "from launcher.backends.kubernetes import schemas\n"
    checked += "print(sorted(heavy), schemas.load.cache_info().currsize)\n"
    done = subprocess.run([sys.executable, "-c", checked], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split("\n")[-2] == "[] 0"


@pytest.mark.nightly
def test_the_schemas_are_what_the_modules_give() -> None:
    """Fetches the modules through Go's proxy, where they are not cached."""
    need("go")
    tool = [sys.executable, str(ROOT / "tools" / "schemas.py"), "--check"]
    done = subprocess.run(tool, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
