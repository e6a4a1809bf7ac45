"""The local backend (docs/explanation/architecture.md): a queue of files, and a supervisor that any verb can start."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from launcher.backends.base import BackendObservation, Handle, QueueListing, Rendered
from launcher.backends.local import entry, queue
from launcher.backends.local.state import QueueNote, Site, StartRecord, StateDir, read
from launcher.errors import BadInput, Conflict, NotFound
from launcher.files import create_all, replace_all
from launcher.protocol.records import Placement
from launcher.spec.code.environment import IGNORED, PYTHON, interpreter
from launcher.spec.hashing import run_hash, run_id
from launcher.spec.model import ResolvedJob
from launcher.trees import document

POLL = 0.1
STOPPED = "`launcher local stop --runs` has stopped this machine's queue: any other launcher command goes on with it"


class LocalBackend:
    """Runs on this machine. `options`: state (folder), cpus, memory (bytes), gpus (number or ids), idle (seconds);
    notify (folder and name of a profile) where its channels are told of ends."""

    name = "local"
    in_this_python = True  # `python` in a command is the one that runs this

    def __init__(self, options: Mapping[str, object]) -> None:
        if not options.get("state"):
            raise BadInput("the local backend needs a state folder: `local: {state: PATH}` in slipway.yaml")
        self.options = options
        self.state = StateDir(Path(str(options["state"])).absolute())
        self._order: tuple[int, dict[str, queue.WaitPosition]] | None = None
        self._stop = self.state.last_stop()

    @property
    def place(self) -> str:
        return str(self.state.path)

    def render(self, group: Sequence[ResolvedJob]) -> Rendered:
        return entry.render(group)

    def check(self, group: Sequence[ResolvedJob]) -> None:
        """Refuses, before anything is written, jobs larger than this machine, secrets that are not set, and our own
        programs where this Python lacks their packages."""
        from launcher.backends.local.slots import capacity
        from launcher.userdata import secrets

        wrong = []
        # counting GPUs asks the driver, which is slow: done only for jobs that need one
        asks = any(role.resources.gpus for job in group for role in job.roles.values())
        room = capacity(self.options if asks else {**self.options, "gpus": 0})
        for job in group:
            if short := room.shortage(job):
                wrong.append(f"{run_id(job)}: {short}")
            for role in job.roles.values() if self.in_this_python else ():
                if why := lacking(role.command, role.env, str(self.options.get("python", ""))):
                    wrong.append(f"{run_id(job)}: {why}")
            missing = secrets.missing(self.state.secrets, job.secrets)
            wrong += [f"{run_id(job)}: secret {name}: {why}" for name, why in missing.items()]
        if wrong:
            raise BadInput("\n".join(wrong))

    def submit(self, rendered: Rendered, group: Sequence[ResolvedJob]) -> Mapping[str, Handle]:
        from launcher.backends.local.environment import own_site, private_variables, python, umask

        self.state.make()
        jobs = {run_id(job): job for job in group}
        hashes = {run: run_hash(job) for run, job in jobs.items()}
        texts = {run: rendered.documents[name] for run, name in rendered.objects.items()}
        if unknown := sorted(set(texts) - set(hashes)):
            raise Conflict(f"{unknown[0]} is not a run of this submit")
        new = [run for run in texts if not self.state.entry(run).exists()]
        told = self.options.get("notify")
        notify = (str(told[0]), str(told[1])) if isinstance(told, tuple) else None
        site = {**own_site(), IGNORED: ",".join(self.options.get("ignore", ()))}  # type: ignore[arg-type]
        if self.in_this_python and "python" in self.options:
            site[PYTHON] = str(self.options["python"])
        shell = Site(python(), 0, site, private_variables(os.environ), notify, umask=umask())
        sites = {
            run: msgspec.structs.replace(shell, order=time.time_ns(), images=dict(self.images(jobs[run])))
            for run in new
        }
        replace_all({self.state.site(run): msgspec.json.encode(site) for run, site in sites.items()})
        taken = create_all({self.state.entry(run): texts[run].encode() for run in new})
        for run in set(texts) - set(new) | {path.stem for path in taken}:
            queued = self._queued(run)  # None: it has ended since; the submit counts as done
            if queued is not None and queued.fingerprint != hashes[run]:
                raise Conflict(f"{self.state.entry(run)} is another job under the name {run}")
        self._start()
        return {run: self._handle(run, hashes[run]) for run in texts}

    def images(self, job: ResolvedJob) -> Mapping[str, str]:
        """Role -> the id of the image that a start now would run; here none."""
        return {}

    def find(self, runs: Collection[str]) -> Mapping[str, Handle]:
        """The handles of the runs that are in the queue, from one listing."""
        queued = set(self.state.queued())
        found = {run: self._queued(run) for run in runs if run in queued}
        handles = {run: handle for run, handle in found.items() if handle is not None}
        if handles:
            self._ensure(queued=True)
        return handles

    def look_up(self, run: str) -> BackendObservation | None:
        handle = self._queued(run)
        if handle is None:
            return None
        self._ensure(queued=True)
        return self._observe(handle)

    def watch(self, handles: Collection[Handle], cursor: str | None) -> Iterator[BackendObservation]:
        from launcher.backends.poll import watch_runs  # a submit watches nothing

        def observe(handle: Handle) -> BackendObservation:
            if self.state.entry(handle.run).exists():
                return self._observe(handle)
            return BackendObservation(handle, active=False, phase="ended")

        def pause() -> None:
            self._ensure(queued=True)
            time.sleep(POLL)

        return watch_runs(handles, observe, pause)

    def logs(self, handle: Handle, role: str, rank: int, previous: bool) -> Iterator[bytes]:
        """Follows the output of the newest start and of all later ones, until the run leaves the queue."""
        member = f"{role}-{rank}"
        outputs = self.state.outputs(handle.run, member)
        if previous:
            if len(outputs) < 2:
                raise NotFound(f"{handle.run}: {member} has no previous start on this machine")
            yield from _chunks(outputs[-2], 0)
            return
        at, position = outputs[-1] if outputs else None, 0
        while True:
            active = self.state.entry(handle.run).exists()
            for path in self.state.outputs(handle.run, member):
                if at is None or path > at:
                    at, position = path, 0
                if path == at:
                    for chunk in _chunks(path, position):
                        position += len(chunk)
                        yield chunk
            if not active:
                return
            time.sleep(POLL)

    def execute(self, run: str, member: str, command: Sequence[str], *, tty: bool) -> list[str]:
        """The argv that runs a command beside a member's own. Raises NotFound when no process of the member runs
        here."""
        from launcher.backends.local import entering, environment
        from launcher.runtime.process import procs

        queued = self._entry(run)
        record = read(self.state.record(run, member), StartRecord) if queued is not None else None
        if queued is None or record is None or not procs.alive(record.pid, record.start, record.boot):
            raise NotFound(f"{run}: no process of {member} runs on this machine")
        runtime, mark = procs.Process(record.pid, record.start), environment.mark(self.state.id, run, member)
        return entering.argv(runtime, queued.job, mark, f"{run}: {member}", command)

    def forward(self, run: str, member: str, ports: Sequence[tuple[int, int]]) -> list[str]:
        """The argv of a program that forwards ports of this machine, and says which need none. Raises NotFound when no
        process of the member runs here."""
        from launcher.backends import forwarding

        self.execute(run, member, ["true"], tty=False)
        return forwarding.argv(ports)

    def cancel(self, handles: Collection[Handle]) -> None:
        there = [handle.run for handle in handles if self.state.entry(handle.run).exists()]
        create_all({self.state.cancel(run): b"" for run in there})
        if there:
            self._start()

    def mine(self) -> Iterator[BackendObservation]:
        self._ensure(again=True)
        for run in self.state.queued():
            if (queued := self._entry(run)) is not None and queued.job.backend == self.name:
                yield self._observe(self._handle(queued.run, queued.fingerprint))

    def queues(self) -> QueueListing:
        self._ensure(again=True)
        return queue.listing(self.state, self.options)

    def here(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        if placement is None:  # the queue of another folder may have the run
            return seen is not None
        return self.state.is_still(entry.queue_of(placement))

    def dead(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        return seen is None and placement is not None and self.here(placement, seen)

    def _entry(self, run: str) -> entry.QueueEntry | None:
        try:
            return entry.parse(self.state.entry(run).read_text())
        except FileNotFoundError:
            return None

    def _queued(self, run: str) -> Handle | None:
        """The handle of a run in the queue, by the fingerprint that its entry names. Whether the job in it is that one,
        the supervisor checks when it takes the entry."""
        try:
            return self._handle(run, entry.fingerprint(self.state.entry(run).read_text()))
        except FileNotFoundError:
            return None

    def _handle(self, run: str, fingerprint: str) -> Handle:
        return Handle(run, self.name, run, fingerprint, {"entry": str(self.state.entry(run))})

    def _observe(self, handle: Handle) -> BackendObservation:
        note = read(self.state.note(handle.run), QueueNote) or QueueNote("queued")
        evidence = note.evidence
        if self._stopped and not self.state.held():
            return BackendObservation(handle, True, "queued", evidence=STOPPED)
        if note.phase == "queued" and not note.reason and (place := self._place(handle.run)) is not None:
            evidence = queue.describe_position(place)
        return BackendObservation(handle, True, note.phase, note.reason, evidence)

    def _place(self, run: str) -> queue.WaitPosition | None:
        """The run's place in the queue. The order file is read again only when it has changed."""
        try:
            stamp = self.state.order.stat().st_mtime_ns
        except FileNotFoundError:
            return None
        if self._order is None or self._order[0] != stamp:
            self._order = stamp, queue.queue_positions(self.state)
        return self._order[1].get(run)

    @property
    def _stopped(self) -> bool:
        """Whether somebody has stopped the queue and its runs since this process began to look."""
        return self.state.last_stop() != self._stop

    def _ensure(self, *, again: bool = False, queued: bool = False) -> None:
        """Starts a supervisor when runs are queued and none lives. `queued`: the caller has seen one. `again`: also
        after somebody has stopped it; a command that only follows a run must not undo that."""
        if (queued or self.state.queued()) and not self.state.held() and (again or not self._stopped):
            self._start()

    def _start(self) -> None:
        self._stop = self.state.last_stop()
        # imported here: `launcher render` starts no supervisor and should itself start fast
        from launcher.backends.local import daemon

        daemon.ensure(self.state, self.options)


def _chunks(path: Path, position: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(position)
            while chunk := file.read(1 << 16):
                yield chunk
    except FileNotFoundError:  # pruned
        return


# Which packages a job's command needs that this Python lacks: said at the submit, before the run would fail.

_STARTERS: Final = ("python", "python3", "torchrun", "accelerate")  # found in this Python's folder, first on the PATH
_PICTURES: Final = ("PIL",)
_MODELS: Final = ("PIL", "torch", "transformers")
# Programs of ours -> modules that they import; the longest name that fits decides
_NEEDS: Final[Mapping[str, Sequence[str]]] = {
    "eval": _PICTURES,
    "eval.export": (),
    "eval.osworld": (),
    "eval.replay": (),
    "eval.tasks": (),
    "training": _MODELS,
    "training.data": _PICTURES,
    "training.make_episodes": _PICTURES,
    "training.plan": (),
    "training.reference": (),
}


def lacking(command: Sequence[str], env: Mapping[str, str], python: str = "") -> str | None:
    """Why `command` cannot run in this Python, or in the one of the path `python`; None where it can, or is not one of
    our programs. A command with a PATH or PYTHONPATH of its own (`env`) may find another Python or more packages, and
    is left alone. Raises BadInput where `python` cannot be started."""
    if not command or command[0] not in _STARTERS or "-m" not in command[:-1] or {"PATH", "PYTHONPATH"} & set(env):
        return None
    program = command[command.index("-m") + 1]
    fits = [name for name in _NEEDS if program == name or program.startswith(f"{name}.")]
    if not fits:
        return None
    needed = _NEEDS[max(fits, key=len)]
    if python:
        needed = (program.partition(".")[0], *needed)
        there = interpreter(python, needed).packages
        missing = [module for module in needed if module not in there]
    else:
        missing = [module for module in needed if find_spec(module) is None]
    if not missing:
        return None
    return (
        f"`{program}` needs the Python packages {', '.join(missing)}, which {python or sys.executable} lacks: install "
        f"Slipway with its extra `train` there ({document('docs/howto/install.md')}), name another Python "
        "(slipway.yaml, `local: {python: PATH}`), or choose a backend that runs images"
    )
