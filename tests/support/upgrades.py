"""Makes a file of tests/data/upgrades: what the code of another commit stored, rendered and said.

    git worktree add ../before COMMIT && make -C ../before dev
    python -m tests.support.upgrades ../before

The clone's own code, in the environment of its own lock, runs the jobs of tests/data/upgrades/source in a folder that
is deleted again. The file is named after the day of the commit. It has the store's files with their times, the
monitor's database, what the verbs printed with `-o json`, and which values its decoders take.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
DATA: Final = ROOT / "tests/data/upgrades"
SOURCE: Final = DATA / "source"
INSIDE: Final = ROOT / "tests/support/upgrades_inside.py"
PLACES: Final = ("STORE", "FOLDER")  # in place of the store's folder, and of the one in which all of it lies
BASE64: Final = "base64:"
SAID: Final = {
    "status": ("status",),
    "groups": ("groups",),
    "results": ("results", "kept", "solves", "idles", "broken", "--all"),
    "cost": ("cost",),
    "gc": ("gc", "--older-than", "0s"),
    "retry": ("retry", "broken", "--dry-run"),
}


def as_text(body: bytes, store: Path) -> str:
    """A file of the store as a text of JSON, with STORE for the store's folder."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return BASE64 + base64.b64encode(body).decode()
    return text.replace(str(store), PLACES[0])


def as_bytes(text: str, store: Path) -> bytes:
    """The other way round, for a store in another folder."""
    if text.startswith(BASE64):
        return base64.b64decode(text.removeprefix(BASE64))
    return text.replace(PLACES[0], str(store)).encode()


def somewhere(said: Any, folder: Path) -> Any:
    """What was said in a folder, with PLACES for it."""
    text = json.dumps(said).replace(str(folder / "store"), PLACES[0])
    return json.loads(text.replace(str(folder), PLACES[1]))


def here(said: Any, folder: Path) -> Any:
    """The other way round, for another folder."""
    text = json.dumps(said).replace(PLACES[0], str(folder / "store"))
    return json.loads(text.replace(PLACES[1], str(folder)))


def gathered(folder: Path) -> list[str]:
    """The contents of the copied results by their hashes, whatever the copies are named."""
    bodies = [path.read_bytes() for path in folder.glob("**/*") if path.is_file() and "results" in path.parts]
    return sorted(hashlib.sha256(body).hexdigest() for body in bodies)


class Before:
    """The code of a clone, run in a folder."""

    def __init__(self, clone: Path, folder: Path) -> None:
        self.bin, self.folder, self.store = clone / ".venv/bin", folder, folder / "store"
        self.environ = {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "OMP_NUM_THREADS": "1",
            "LANG": "C.UTF-8",
            "MY_TOKEN": "none",
        }

    def run(self, *words: str, codes: Sequence[int] = (0,)) -> str:
        """What a program of its environment prints. Raises SystemExit for another exit code."""
        done = subprocess.run(
            [self.bin / words[0], *words[1:]],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in codes:
            raise SystemExit(
                f"upgrades: {' '.join(words[:3])}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def verb(self, *words: str, codes: Sequence[int] = (0,)) -> Any:
        return json.loads(self.run("launcher", *words, "-o", "json", codes=codes))

    def knows(self, verb: str) -> bool:
        return f"\n  {verb} " in self.run("launcher", "--help")


def made(clone: Path, folder: Path) -> dict[str, Any]:
    """What the file has. `folder` is empty."""
    for file in (*SOURCE.iterdir(), INSIDE):
        shutil.copy(file, folder)
    before = Before(clone, folder)
    before.run("launcher", "submit", "jobs.yaml", "--backend", "local", "--follow", codes=(1,))  # one job fails
    said = {name: before.verb(*words) for name, words in SAID.items() if before.knows(words[0])}
    (group,) = said["groups"]
    said["compare"] = before.verb("compare", f"{group['group']}/idles", f"{group['group']}/solves")
    before.run("launcher", "gather", "kept", "solves", "--to", "copies")
    said["gather"] = gathered(folder / "copies")
    rendered = before.run("launcher", "render", "jobs.yaml", "--backend", "kubernetes", "--store", "s3://bucket/x")
    inside = json.loads(before.run("python", INSIDE.name))
    before.run("launcher", "local", "stop")
    files = sorted(path for path in before.store.rglob("*") if path.is_file())
    database = folder / "monitor.sqlite"
    packed = base64.b64encode(zlib.compress(database.read_bytes(), 9)).decode() if database.exists() else None
    return {
        "files": {str(path.relative_to(before.store)): as_text(path.read_bytes(), before.store) for path in files},
        "times": {str(path.relative_to(before.store)): path.stat().st_mtime_ns for path in files},
        "said": somewhere({**said, "profile": inside["profile"]}, folder),
        "strict": inside["strict"],
        "views": inside["database"],  # the database is as it was, its folders too
        "rendered": rendered,
        "monitor": packed,
    }


def write(clone: Path, to: Path) -> Path:
    """The file for the commit that is checked out in a clone."""
    shown = subprocess.run(
        ["git", "log", "-1", "--date=short", "--format=%h %cd"], cwd=clone, capture_output=True, text=True, check=True
    )
    commit, day = shown.stdout.split()
    with tempfile.TemporaryDirectory(prefix="upgrades-") as folder:
        found = {"commit": commit, "day": day, **made(clone, Path(folder).resolve())}
    file = to / f"{day}.json"
    file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return file


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / ".venv").is_dir():
        sys.exit("upgrades: give a clone of the commit in which `make dev` ran: python -m tests.support.upgrades CLONE")
    print(write(Path(sys.argv[1]).resolve(), DATA))
