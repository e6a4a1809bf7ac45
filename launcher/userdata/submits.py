"""What this machine remembers of its submits: the newest run of each job, and notes about interrupted submits, from
which `status` prints the command that repairs them.

The store cannot tell a run whose submit was interrupted from one that waits in another folder's queue: both have a
job.json and no claim. So a submit writes a note on this machine before the first job.json, and deletes it when the
backend has every run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from launcher.decoding import decode
from launcher.errors import NotFound, SlipwayError
from launcher.files import keep
from launcher.protocol.read import read_run
from launcher.spec.hashing import decode_job, encode_job
from launcher.spec.model import ResolvedJob, at_turn
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.userdata.cache import cache_folder


class Note(msgspec.Struct, frozen=True):
    """A submit in progress: its store, the backend's `place`, its runs, and the submitting process."""

    store: str
    place: str
    runs: tuple[str, ...]
    pid: int
    start: int
    boot: str


def folder() -> Path:
    home = Path(os.environ.get("HOME") or Path.home())
    return Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "slipway" / "submits"


@contextmanager
def noted(store: Store, place: str, runs: Sequence[str], notes: Path | None) -> Iterator[None]:
    """Keeps a note while a submit runs. After a Ctrl-C or an error the note stays, until a later submit of all its runs
    deletes it. `notes` None: no note is written. A folder that cannot be written is no error."""
    if notes is None or not runs:
        yield
        return
    path = _write(notes, store, place, runs)
    yield
    done = set(runs)
    for other, note in _read(notes):
        if other == path or (note.store == store.url and done.issuperset(note.runs)):
            other.unlink(missing_ok=True)


def _write(notes: Path, store: Store, place: str, runs: Sequence[str]) -> Path | None:
    from launcher.runtime.process import procs

    pid = os.getpid()
    try:
        note = Note(store.url, place, tuple(runs), pid, procs.start_time(pid) or 0, procs.boot_id())
        notes.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = notes / f"{uuid.uuid4().hex}.json"
        part = path.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(note))
        part.replace(path)
    except OSError:
        return None
    return path


def _read(notes: Path) -> Iterator[tuple[Path, Note]]:
    try:
        names = sorted(os.listdir(notes))  # noqa: PTH208 - asked for every run that waits
    except OSError:
        return
    for name in names:
        if name.endswith(".json"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                yield notes / name, decode((notes / name).read_bytes(), Note)


def note_of(url: str, run: str, place: str | None = None) -> Note | None:
    """The note of a submit of this run whose process has ended; with `place`, only of a submit to that backend."""
    from launcher.runtime.process import procs

    for _, note in _read(folder()):
        if note.store == url and run in note.runs and place in (None, note.place):
            with contextlib.suppress(OSError):
                if not procs.alive(note.pid, note.start, note.boot):
                    return note
    return None


def repair(url: str, run: str, place: str) -> str:
    """The command that completes an interrupted submit of this run; "" without a note."""
    if note_of(url, run, place) is None:
        return ""
    return f"launcher submit --run {run} --store {shlex.quote(url)}"


def jobs_of(store: Store, run: str) -> Mapping[str, ResolvedJob]:
    """The jobs of an interrupted submit, in its order: those whose job.json was written. Without a note, the job of
    `run` alone. Raises NotFound."""
    note = note_of(store.url, run)
    jobs = {}
    for named in note.runs if note is not None else (run,):
        body = store.read(RunKeys(named).job)
        if body is not None:
            job = decode_job(body[0])
            turn = read_run(store, named, full=False).turn if job.alternatives else 0
            jobs[named] = at_turn(job, turn)
    if run not in jobs:
        raise NotFound(f"no run `{run}` in {store.url}")
    return jobs


def remember(store: str, jobs: Mapping[str, ResolvedJob]) -> None:
    """Keeps the jobs by their names (of a matrix: with the variant). A folder that cannot be written is no error."""
    for name, job in jobs.items():
        keep(_path(store, name), encode_job(job))


def newest(store: str, name: str) -> ResolvedJob | None:
    """The job that was kept under this name; None without one, and for one that this version cannot read."""
    try:
        return decode_job(_path(store, name).read_bytes())
    except (OSError, SlipwayError):
        return None


def _path(store: str, name: str) -> Path:
    place = hashlib.sha256(f"{store}\n{name}".encode()).hexdigest()[:32]
    return cache_folder() / "newest" / f"{place}.json"
