"""Builds the wheel and the sdist: `python -m tools.wheel [FOLDER]`, or `make wheel`.

Equal sources give equal bytes: it builds from a copy of the files that Git tracks, with fixed modes and times, by the
setuptools of this environment (a lock pins it). Nothing is fetched.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
EPOCH: Final = 315532800  # 1980, the first time that a zip can hold
_BUILD: Final = "import sys; from setuptools import build_meta as b; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"


def copy_tracked(folder: Path) -> None:
    """What Git tracks here, as it stands in the working tree, with modes 644 and 755 whatever the umask was."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, os.fsdecode(listed).split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_file() and not name.startswith("tests/"):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def build(what: str, source: Path, out: Path) -> Path:
    """Builds `wheel` or `sdist` of a source folder into `out`; returns the file."""
    made = out / what
    made.mkdir(parents=True)
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        ["bash", "-c", 'umask 022; exec "$@"', "-", sys.executable, "-c", _BUILD, what, str(made)],
        cwd=source,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the {what} was not built:\n{done.stdout}{done.stderr}")
    (file,) = made.iterdir()
    return file


def plain(archive: bytes) -> bytes:
    """A .tar.gz with its entries sorted, and without times, owners and the gzip's own time."""
    entries: list[tuple[tarfile.TarInfo, bytes]] = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in tar:
            held = tar.extractfile(entry) if entry.isfile() else None
            entries.append((entry, held.read() if held is not None else b""))
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry, data in sorted(entries, key=lambda one: one[0].name):
            plain_entry = tarfile.TarInfo(entry.name)
            plain_entry.type, plain_entry.size, plain_entry.mtime = entry.type, len(data), EPOCH
            plain_entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            tar.addfile(plain_entry, io.BytesIO(data))
    return gzip.compress(body.getvalue(), mtime=0)


def make(out: Path) -> list[Path]:
    """Writes both files into `out`; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="slipway-wheel-") as folder:
        source = Path(folder) / "source"
        copy_tracked(source)
        built = [build(what, source, Path(folder)) for what in ("sdist", "wheel")]
        files = []
        for file in built:
            body = file.read_bytes()
            (out / file.name).write_bytes(plain(body) if file.name.endswith(".tar.gz") else body)
            files.append(out / file.name)
    return files


def main() -> int:
    for file in make(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
