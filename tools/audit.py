"""Known vulnerabilities of every locked package: `make audit`, and each night (.github/workflows/audit.yaml).

pip-audit asks for the packages of each `*.lock` of this repository, npm for those of each package-lock.json (there is
none today). Nothing is installed: the locks name exact versions. Exit code: 0, 1 when something is known, 2 when a
program or its service did not answer, so that a night without an answer is no clean night; a package that the service
does not know counts as no answer.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PIP: Final = ("pip-audit", "--disable-pip", "--require-hashes", "--strict", "--progress-spinner=off", "-r")
NPM: Final = ("npm", "audit", "--package-lock-only")


def locks(root: Path = ROOT) -> list[str]:
    """The tracked locks, by their paths in the repository."""
    words = ("git", "ls-files", "*.lock", "*package-lock.json")
    return sorted(subprocess.run(words, cwd=root, check=True, capture_output=True, text=True).stdout.split())


def audit(lock: str, root: Path = ROOT) -> int:
    """Prints what is known of one lock's packages. Gives 0, 1 or 2, as the exit code."""
    path = root / lock
    node = path.name == "package-lock.json"
    words, folder = (NPM, path.parent) if node else ((*PIP, lock), root)
    print(f"== {lock}", flush=True)
    try:
        done = subprocess.run(words, cwd=folder, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        print(f"audit: {words[0]}: is not on the PATH: `make audit` installs pip-audit, Debian's npm has npm")
        return 2
    print((done.stdout + done.stderr).strip(), flush=True)
    # both end with 1 for findings and for a service that is away; only a finding has a report on standard output
    found = "vulnerabilit" in done.stdout if node else "ID" in done.stdout.split()
    return 0 if done.returncode == 0 else 1 if found else 2


def main(argv: Sequence[str]) -> int:
    codes = [audit(lock) for lock in argv or locks()]
    print(f"{len(codes)} locks: {codes.count(1)} with known vulnerabilities, {codes.count(2)} without an answer")
    return 1 if 1 in codes else max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
