"""Debian's packages as a part of the version."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.unit.images.test_debian import ROOT


def test_a_snapshot_replaces_every_source_of_the_base(tmp_path: Path) -> None:
    """The lines of the Dockerfile, run by a shell in a folder that stands for the root."""
    text = (ROOT / "images" / "common.Dockerfile").read_text()
    match = re.search(r"^RUN (if \[ -n \"\$SNAPSHOT\" \]; then.*?fi) \\\n", text, re.MULTILINE | re.DOTALL)
    assert match is not None
    script = match[1].replace("\\\n", " ").replace("/etc/apt", str(tmp_path))
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text("URIs: http://mirror.test/debian\n")
    for snapshot, kept in (("", True), ("20261122T000000Z", False)):
        environment = {"SNAPSHOT": snapshot, "ARCHIVE": "http://archive.test", "PATH": "/usr/bin:/bin"}
        subprocess.run(["bash", "-c", script], env=environment, check=True)
        assert (tmp_path / "sources.list.d" / "debian.sources").exists() is kept
        assert (tmp_path / "sources.list").exists() is not kept
    assert (tmp_path / "sources.list").read_text().splitlines() == [
        f"deb [check-valid-until=no] http://archive.test/{archive}/20261122T000000Z {suite} main"
        for archive, suite in (
            ("debian", "bookworm"),
            ("debian", "bookworm-updates"),
            ("debian-security", "bookworm-security"),
        )
    ]
