"""The newest Python of the promises, as Debian 13 has it: `make quick` on a bare machine, from the same locks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import needs

pytestmark = [pytest.mark.nightly, pytest.mark.alone]


def test_quick_on_python_3_13(tmp_path: Path) -> None:
    needs.need("mmdebstrap")
    chroot = ["tools/bare_chroot.sh", "--release", "trixie", str(tmp_path / "debian")]
    version = subprocess.run(
        [*chroot, "python3", "--version"], check=True, capture_output=True, text=True, cwd=needs.ROOT
    )
    assert version.stdout.splitlines()[-1].startswith("Python 3.13.")
    subprocess.run([*chroot, "make", "quick"], check=True, cwd=needs.ROOT)
