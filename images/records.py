"""Refuses an environment in which two packages wrote the same file with other bytes: `python records.py SITE_PACKAGES`.

Installing never says so: who comes last wins, and which one that is may change from build to build. Run by the build
of every image that has packages, right after they are installed.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

# Not what a package imports: tests, papers, and the program that built the wheel (flashinfer-python's build_backend.py
# and torch-c-dlpack-ext's), which some wheels leave at the top by mistake.
HARMLESS = ("LICENSE", "README.md", "build_backend.py", "docs/", "examples/", "test/", "tests/")


def overlaps(site: Path) -> dict[tuple[str, ...], list[str]]:
    """{the packages: the files that they all wrote, with different hashes}, from the RECORD of each."""
    written: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for record in sorted(site.glob("*.dist-info/RECORD")):
        package = record.parent.name.removesuffix(".dist-info")
        with record.open(encoding="utf-8", newline="") as file:
            for path, digest, *_ in (row for row in csv.reader(file) if row):
                if digest and not path.startswith(HARMLESS):
                    written[path].append((package, digest))
    shared: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path, entries in written.items():
        if len({digest for _, digest in entries}) > 1:
            shared[tuple(package for package, _ in entries)].append(path)
    return dict(shared)


def main(site: str) -> int:
    shared = overlaps(Path(site))
    for packages, paths in shared.items():
        print(f"records: {' and '.join(packages)} write {len(paths)} same files, such as {min(paths)}", file=sys.stderr)
    if shared:
        print("records: pin versions that do not overlap in the image's requirements.in", file=sys.stderr)
    return bool(shared)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
