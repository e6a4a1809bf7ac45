"""The state folder of the local backend. Only this module knows its file names and how they are written.

    id                      random, made once: tells this queue from any other
    lock                    flock of the supervisor; wake: a FIFO it listens on; supervisor.json: its pid
    supervisor.log
    queue/<run>.yaml        the queue entry, create-only: what `render` prints
    sites/<run>.json        the submitter's shell: python, PATH, credentials for the store; 0600
    cancels/<run>           a user asked to cancel the run
    notes/<run>.json        phase and evidence, for users; rewritten by the supervisor
    order.json              the runs that wait for slots, in the order in which they will start; for users
    runs/<run>/<member>/    record.json (the living process), work/ (scratch), <n>.log (output of the n-th start)
    secrets.json            `launcher secrets set`; 0600

Files on which decisions depend are written whole, with fsync of the file and its folder, so that they survive a power
cut. The entry is written last and deleted last: while it exists, this machine must still finish the run.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
import uuid
from pathlib import Path
from typing import TypeVar

import msgspec

from launcher.decoding import decode
from launcher.errors import Unreachable
from launcher.files import create, sync_folder

T = TypeVar("T", bound=msgspec.Struct)


class Site(msgspec.Struct, frozen=True):
    """The submitter's shell: what a run needs beyond its job."""

    python: str
    order: int  # nanoseconds since the epoch at submission: decides the order in the queue
    env: dict[str, str] = {}
    private: dict[str, str] = {}  # credentials that open the store
    notify: tuple[str, str] | None = None  # the folder and the name of the profile whose channels are told of its end
    images: dict[str, str] = {}  # role -> the id of its image when it was submitted, if the engine had it then
    umask: int = 0o077  # of the run's processes


class StartRecord(msgspec.Struct, frozen=True):
    """One member's process, written when it started. `final`: the exit code after which it never starts again."""

    starts: int
    pid: int = 0
    start: int = 0
    boot: str = ""
    machine: str = ""
    container: str = ""
    image: str = ""  # the id of the container's image
    gpus: tuple[str, ...] = ()
    failures: int = 0
    final: int | None = None


class QueueNote(msgspec.Struct, frozen=True):
    """What `status` may show of an entry besides the store's records."""

    phase: str  # waiting | queued | running | restarting | stopping | closing
    reason: str = ""
    evidence: str = ""


class SupervisorRecord(msgspec.Struct, frozen=True):
    """The supervisor that wrote supervisor.json. It may be dead: only the lock tells."""

    pid: int
    start: int
    boot: str
    since: float
    python: str
    version: str = ""  # of Slipway; "" of a supervisor before this field


class StateDir:
    """File names and durable writes below one state folder."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.lock_file = self.path / "lock"
        self.wake_fifo = self.path / "wake"
        self.who = self.path / "supervisor.json"
        self.log = self.path / "supervisor.log"
        self.queue = self.path / "queue"
        self.order = self.path / "order.json"
        self.secrets = self.path / "secrets.json"
        self.stopped = self.path / "stopped"

    def make(self) -> StateDir:
        """Creates what is missing, readable by nobody else."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in ("queue", "sites", "cancels", "notes", "runs"):
                (self.path / name).mkdir(exist_ok=True, mode=0o700)
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self.wake_fifo, 0o600)
        except OSError as error:
            raise Unreachable(f"the local backend's state folder {self.path} cannot be written: {error}") from None
        return self

    @property
    def id(self) -> str:
        file = self.path / "id"
        with contextlib.suppress(FileNotFoundError):
            return file.read_text()
        create(file, uuid.uuid4().hex[:12].encode())
        return file.read_text()

    def last_stop(self) -> str:
        """Tells one `local stop --runs` from another; "" before the first."""
        try:
            return self.stopped.read_text()
        except OSError:
            return ""

    def is_still(self, known: str) -> bool:
        """Whether this is still the folder whose id was `known`: not deleted, not created again."""
        try:
            return (self.path / "id").read_text() == known
        except FileNotFoundError:
            return False

    def entry(self, run: str) -> Path:
        return self.queue / f"{run}.yaml"

    def site(self, run: str) -> Path:
        return self.path / "sites" / f"{run}.json"

    def cancel(self, run: str) -> Path:
        return self.path / "cancels" / run

    def note(self, run: str) -> Path:
        return self.path / "notes" / f"{run}.json"

    def run(self, run: str) -> Path:
        return self.path / "runs" / run

    def member(self, run: str, member: str) -> Path:
        return self.run(run) / member

    def record(self, run: str, member: str) -> Path:
        return self.member(run, member) / "record.json"

    def output(self, run: str, member: str, start: int) -> Path:
        return self.member(run, member) / f"{start:06d}.log"

    def outputs(self, run: str, member: str) -> list[Path]:
        """The output files of a member's starts, oldest first."""
        return sorted(self.member(run, member).glob("[0-9]*.log"))

    def queued(self) -> list[str]:
        """The runs that have an entry, by name."""
        try:
            names = os.listdir(self.queue)  # noqa: PTH208 - called at every wake-up
        except FileNotFoundError:
            return []
        return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))

    def cancelled(self) -> set[str]:
        try:
            return {name for name in os.listdir(self.path / "cancels") if not name.startswith(".")}  # noqa: PTH208
        except FileNotFoundError:
            return set()

    def retire(self, run: str) -> None:
        """Forgets a run for which this machine has nothing more to do; the entry itself is deleted last."""
        import shutil  # slow to import, and rendering does not need it

        for folder in self.run(run).glob("*"):
            for name in ("work", "credentials"):  # credentials/: copies for a container
                shutil.rmtree(folder / name, ignore_errors=True)
            for name in ("record.json", "private.json"):  # private.json: credentials for a container
                (folder / name).unlink(missing_ok=True)
        for file in (self.site(run), self.note(run), self.cancel(run), self.entry(run)):
            file.unlink(missing_ok=True)
        sync_folder(self.queue)

    def prune(self, keep: int) -> None:
        """Removes the output of runs that left the queue, except the last `keep`, and half-written files that a kill
        left."""
        for name in ("queue", "sites", "cancels", "notes"):
            for scrap in (self.path / name).glob(".*"):
                with contextlib.suppress(FileNotFoundError):
                    if scrap.stat().st_mtime < time.time() - 3600:
                        scrap.unlink()
        import shutil

        queued = set(self.queued())
        old = [folder for folder in (self.path / "runs").iterdir() if folder.name not in queued]
        old.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
        for folder in old[keep:]:
            shutil.rmtree(folder, ignore_errors=True)

    def held(self) -> bool:
        """Whether a supervisor lives, that is, holds the lock."""
        try:
            handle = os.open(self.lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return True
        finally:
            os.close(handle)

    def wake(self) -> None:
        """Makes the supervisor read its folder now. Without a supervisor nothing happens: it reads the folder when it
        starts."""
        with contextlib.suppress(OSError):
            handle = os.open(self.wake_fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if stat.S_ISFIFO(os.fstat(handle).st_mode):
                    os.write(handle, b".")
            finally:
                os.close(handle)


def read(path: Path, kind: type[T]) -> T | None:
    """A JSON file as a structure; None when it is missing or torn. Files on which decisions depend are never torn."""
    try:
        return decode(path.read_bytes(), kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None
