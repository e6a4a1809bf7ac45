"""The documents of all releases as one site with a switch of versions: `python -m tools.site FOLDER ARCHIVE...`, of the
releases' slipway-docs-VERSION.tar.gz. The first page leads to the newest version."""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

NEWEST: Final = """<!doctype html>
<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}/index.html">
<title>Slipway</title><a href="{0}/index.html">The documents of {0}</a>
"""


def switch(site: Path, versions: Sequence[str]) -> None:
    """Writes what the pages' switch reads, and the first page. `versions`: the newest first."""
    listed = [{"version": each, "title": each, "aliases": []} for each in versions]
    (site / "versions.json").write_text(json.dumps(listed) + "\n", encoding="utf-8")
    (site / "index.html").write_text(NEWEST.format(versions[0]), encoding="utf-8")


def unpacked(site: Path, archives: Sequence[Path]) -> list[str]:
    """Unpacks each version's pages into their folder; the versions, the newest first."""
    for archive in archives:
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                member.name = member.name.partition("/")[2]
                if "/" in member.name:  # what lies above the pages is of that release's day
                    tar.extract(member, site, filter="data")
    found = [folder.name for folder in site.iterdir() if folder.is_dir()]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")], reverse=True)


def main() -> int:
    if len(sys.argv) < 3:
        print("usage: python -m tools.site FOLDER ARCHIVE...", file=sys.stderr)
        return 2
    site = Path(sys.argv[1])
    site.mkdir(parents=True)
    versions = unpacked(site, [Path(name) for name in sys.argv[2:]])
    switch(site, versions)
    print(*versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
