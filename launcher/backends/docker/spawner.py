"""Members as containers: the supervisor's Spawner over a Docker engine.

The engine may restart, and the supervisor may die, at any moment. So a container is found by its label, never by memory
alone. Before a member starts again, every container with its mark is killed, and one that was created and not started
is removed: this proves that no earlier start is alive. Ended containers stay, with the engine's copy of their output,
until their run leaves the queue.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace as replace_place
from pathlib import Path
from signal import SIGKILL
from typing import Any

import msgspec

from launcher.backends.docker import container
from launcher.backends.docker.container import ContainerSettings
from launcher.backends.local.environment import machine
from launcher.backends.local.state import StartRecord
from launcher.backends.local.supervisor.spawner import UNKNOWN, Launch, LiveRuntime, NeverStarts, NotYet
from launcher.errors import NotFound, SlipwayError
from launcher.files import replace
from launcher.images.engine import Engine, EngineRefused
from launcher.reasons import Reason
from launcher.runtime.settings import IMAGE
from launcher.spec.model import ResolvedJob

AGAIN = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # seconds between looks for containers of runs that left the queue
RUNS_ON = 5  # looks after which a container that still runs is left alone: it has another owner
POLL = 2.0  # longest pause in seconds between requests to an engine that does not answer
ENDED = ("exited", "dead", "removing")
LEFT = ("created", *ENDED)
DEVICE = "error gathering device information"  # the engine has no such device
NEVER = ("unable to find user", "unable to find group", "invalid mode: ", "invalid volume specification", DEVICE)
PULLS = (2.0, 8.0)  # seconds before a pull is tried again; the engine itself tries each layer five times
REFUSALS = ("denied", "unauthorized", "authentication required", "not found", "manifest unknown", "invalid reference")


class DockerSpawner:
    """The containers of the engine that the submitter's environment names."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {name: value for name, value in environ.items() if name.startswith("DOCKER_")}
        self._engine: Engine | None = None
        self._pulls: dict[str, _Pull] = {}
        self._lock = threading.Lock()  # guards _left and _tidying
        self._left: tuple[str, frozenset[str]] | None = None  # the newest queue, not yet compared with the engine
        self._tidying = False

    def spawn(self, launch: Launch, record: StartRecord) -> LiveRuntime:
        """Raises NotYet while the image is pulled; NeverStarts for an image that cannot be pulled, has no runtime, or
        is another one than the run began with."""
        engine = self.engine()
        role = launch.member.rpartition("-")[0]
        image = self._image(engine, container.image(launch.job, role))
        if launch.image not in ("", image) and not launch.job.roles[role].image.digest:
            reference = container.image(launch.job, role)
            raise NeverStarts(Reason.CONFIG_ERROR, container.moved(launch.run, reference, launch.image, image))
        launch.work.mkdir(parents=True, exist_ok=True)
        private = launch.work.parent / "private.json"
        replace(private, json.dumps(dict(launch.private)).encode())
        home = launch.environment.get("HOME")
        files = container.credentials(launch.private, Path(home) if home else None)
        shown = tuple({launch.private.get("AWS_CA_BUNDLE", "")} & set(files.values()))
        copied: list[Path] = []
        if not launch.job.store_access:
            files, copied = copies(files, shown, launch.work.parent / "credentials")
        container_place = replace_place(
            container_settings(engine, launch.work, private, record.gpus, files), shown=shown, groups=groups(launch.job)
        )
        if container.user(launch.job, container_place) != container_place.user:
            _open_to_others(launch.work, private, *copied)
        extra = {name: value for name, value in launch.environment.items() if name == "SLIPWAY_TUNING"}
        settings = container.settings(
            launch.job,
            launch.run,
            launch.member,
            record.starts,
            launch.mark,
            container_place,
            {**extra, IMAGE: image},
        )
        # a missing input is left to the runtime, whose message says more than the engine's refusal
        host = settings["host_config"]
        host["mounts"] = [mount for mount in host["mounts"] if os.access(mount.source, os.F_OK)]
        if container.network(launch.job) == container.NETWORK:
            engine.ensure_network(container.NETWORK)
        try:
            started = engine.start_container(settings, image)
        except SlipwayError as error:
            raise _for_good(error, container.image(launch.job, role)) or error from None
        start_record = msgspec.structs.replace(record, container=started, image=image, machine=machine())
        return _Container(engine, start_record, launch.output)

    def adopt(self, record: StartRecord, output: Path) -> LiveRuntime | None:
        """Also adopts a container that has ended: its exit code must still be read. Raises Unreachable."""
        try:
            self.engine().container(record.container)
        except NotFound:
            return None
        return _Container(self.engine(), record, output)

    def sweep(self, mark: str) -> bool:
        engine = self.engine()
        for listed in engine.containers({container.MARK: mark}, running=False):
            if listed["State"] == "created":  # its creator may be dead, or the engine may be about to start it
                engine.remove_container(listed["Id"])
            elif listed["State"] not in ENDED:
                engine.kill(listed["Id"], "SIGKILL")
        return not engine.containers({container.MARK: mark}, running=True)

    def reap(self, known: frozenset[int]) -> None:
        """Does nothing: the processes of a container end with it."""

    def forget(self, queue: str, queued: frozenset[str]) -> None:
        """Removes ended containers of this queue's runs that left it; those of another queue's run with the same name
        stay. Works in a thread, because a busy engine is slow. Asks again when the engine does not answer, or has just
        started and does not know yet which containers ended."""
        with self._lock:
            self._left = queue, queued
            if not self._tidying:
                self._tidying = True
                threading.Thread(target=self._tidy, name="forget", daemon=True).start()

    def _tidy(self) -> None:
        while True:
            with self._lock:
                if self._left is None:
                    self._tidying = False
                    return
                (queue, queued), self._left = self._left, None
            runs_on = 0
            for pause in itertools.chain(AGAIN, itertools.repeat(AGAIN[-1])):
                away, alive = self._removed(queue, queued)
                runs_on += alive
                if not away and (not alive or runs_on > RUNS_ON):
                    break
                time.sleep(pause)
                if self._changed():
                    break

    def _changed(self) -> bool:
        """Whether the queue has changed since this thread read it."""
        with self._lock:
            return self._left is not None

    def _removed(self, queue: str, queued: frozenset[str]) -> tuple[bool, bool]:
        """Two flags: a container could not be listed or removed; a container of a run that left the queue still
        runs."""
        away = alive = False
        try:
            containers = self.engine().containers({container.QUEUE: queue}, running=False)
        except SlipwayError:
            return True, False
        for listed in containers:
            if listed["Labels"].get(container.RUN) in queued:
                continue
            if listed["State"] not in LEFT:
                alive = True
                continue
            try:
                self.engine().remove_container(listed["Id"])
            except SlipwayError:
                away = True
        return away, alive

    def ask_to_end(self, record: StartRecord) -> None:
        self.engine().kill(record.container, "SIGTERM")

    def lives(self, record: StartRecord) -> bool:
        if not record.container:
            return False
        try:
            return bool(self.engine().container(record.container)["Running"])
        except NotFound:
            return False

    def engine(self) -> Engine:
        """Raises Unreachable."""
        if self._engine is None:
            self._engine = Engine(self._environ)
        return self._engine

    def _image(self, engine: Engine, reference: str) -> str:
        """The id of the image, which is there and has the runtime. A thread pulls a missing image."""
        try:
            image = engine.inspect(reference)
        except NotFound:
            if "/" not in reference:
                raise NeverStarts(Reason.IMAGE_PULL, container.unbuilt(reference)) from None
            pull = self._pulls.setdefault(reference, _Pull(engine, reference))
            if pull.running:
                raise NotYet(f"pulling {reference}") from None
            del self._pulls[reference]
            raise NeverStarts(
                Reason.IMAGE_PULL, pull.error or f"{reference} was pulled, but the engine does not have it"
            ) from None
        self._pulls.pop(reference, None)
        if container.RUNTIME_LABEL not in (image["Config"].get("Labels") or {}):
            raise NeverStarts(Reason.CONFIG_ERROR, f"image {reference} has no Slipway runtime: {container.FIX}")
        return str(image["Id"])


def spawners() -> Callable[[Mapping[str, str]], DockerSpawner]:
    """A spawner for each engine that submitters' environments name, made at its first use."""
    by_engine: dict[tuple[tuple[str, str], ...], DockerSpawner] = {}

    def spawner(environ: Mapping[str, str]) -> DockerSpawner:
        named = tuple(sorted(item for item in environ.items() if item[0].startswith("DOCKER_")))
        return by_engine.setdefault(named, DockerSpawner(environ))

    return spawner


def groups(job: ResolvedJob) -> tuple[int, ...]:
    """The gids of the devices that a job names, sorted. The container's user is in none of the groups of this machine,
    and /dev/kvm is for its group. A device that is not here is left to the engine, whose refusal names it."""
    gids = set()
    for device in job.options.get("devices", ()):
        with contextlib.suppress(OSError):
            gids.add(Path(device.split(":")[0]).stat().st_gid)
    return tuple(sorted(gids))


def container_settings(
    engine: Engine, work: Path, private: Path, gpus: tuple[str, ...], files: Mapping[str, str]
) -> ContainerSettings:
    """The place of a container. In a rootless engine root in the container is the submitter; an engine that remaps uids
    can be told not to."""
    engine_info = engine.info()
    security = {part for option in engine_info.get("SecurityOptions") or () for part in option.split(",")}
    user = "0:0" if "name=rootless" in security else f"{os.getuid()}:{os.getgid()}"
    cpus = float(engine_info["NCPU"]) if engine_info.get("NCPU") else None
    return ContainerSettings(user, work, private, gpus, files, cpus, remapped="name=userns" in security)


def copies(files: Mapping[str, str], shown: tuple[str, ...], folder: Path) -> tuple[dict[str, str], list[Path]]:
    """Copies files with credentials, for the runtime to read and empty; files in `shown` are not copied. Returns the
    new mapping, and the files and folders written."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    copied, written = {}, [folder]
    for index, (here, there) in enumerate(files.items()):
        if there in shown:
            copied[here] = there
            continue
        copy = folder / str(index)
        copied[str(copy)] = there
        written.append(copy)
        if Path(here).is_dir():  # ~/.aws: only the two files that its client reads
            copy.mkdir(mode=0o700)
            inside = [Path(here, name) for name in ("credentials", "config") if Path(here, name).is_file()]
            for source in inside:
                replace(copy / source.name, source.read_bytes())
                written.append(copy / source.name)
        else:
            replace(copy, Path(here).read_bytes())
    return copied, written


def _open_to_others(work: Path, *private: Path) -> None:
    """Lets a container of another user read and write. The parent folder keeps other users of this machine out."""
    work.parent.chmod(0o700)
    for path in (work, *private):
        path.chmod(0o777 if path.is_dir() else 0o666)


def _for_good(error: SlipwayError, reference: str) -> NeverStarts | None:
    """NeverStarts when no retry can help. Judged by the engine's message, because its error codes do not tell."""
    text = str(error)
    if "could not select device driver" in text or "nvidia-container-cli" in text:
        return NeverStarts(Reason.CONFIG_ERROR, f"{container.TOOLKIT} ({text})")
    if f'exec: "{container.ENTRYPOINT[0]}"' in text:
        message = f"image {reference} has no `{container.ENTRYPOINT[0]}` on its PATH"
        return NeverStarts(Reason.CONFIG_ERROR, f"{message}: {container.FIX}")
    if isinstance(error, EngineRefused) or any(words in text for words in NEVER):
        return NeverStarts(Reason.CONFIG_ERROR, text)
    return None


class _Pull:
    """A pull in a thread. Tries again when the registry cannot be reached, not when it refuses or has no such image."""

    def __init__(self, engine: Engine, reference: str) -> None:
        self.error = ""
        self._engine, self._reference = engine, reference
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        for pause in (*PULLS, None):
            try:
                return self._engine.pull(self._reference)
            except SlipwayError as error:
                self.error = f"{self._reference} cannot be pulled: {error}"
                if pause is None or any(word in str(error).lower() for word in REFUSALS):
                    return None
            time.sleep(pause)


class _Container:
    """A container that was started or adopted. A thread copies its output, and makes `fileno` readable when it ends."""

    def __init__(self, engine: Engine, record: StartRecord, output: Path) -> None:
        self.record = record
        self._engine = engine
        self._output = output
        self._lock = threading.Lock()
        self._handle = os.eventfd(0, os.EFD_CLOEXEC)
        self._code: int | None = None
        self.out_of_memory = False
        self._closed = threading.Event()
        threading.Thread(target=self._wait, name=f"wait {record.container[:12]}", daemon=True).start()

    def fileno(self) -> int:
        return self._handle

    def ended(self) -> int | None:
        return self._code

    def terminate(self) -> None:
        with contextlib.suppress(SlipwayError):
            self._engine.kill(self.record.container, "SIGTERM")

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def _wait(self) -> None:
        """Waits until the container has ended. An engine that does not answer, or answers nonsense while it shuts down,
        is asked again: it says nothing about the container, and a run whose end nobody sees would never be over."""
        pause = 0.05
        while not self._closed.is_set():
            began = time.monotonic()
            with contextlib.suppress(Exception):  # also a full disk: the engine keeps the output
                self._copy()
            pause = 0.05 if time.monotonic() - began > POLL else min(2 * pause, POLL)
            try:
                state = self._engine.container(self.record.container)
                if not state["Running"]:
                    self.out_of_memory = bool(state.get("OOMKilled"))
                    return self._end(_code(state))
            except NotFound:
                return self._end(UNKNOWN)
            except Exception:
                pause = POLL
            self._closed.wait(pause)

    def _copy(self) -> None:
        """Copies the output that our file does not have yet, and follows it until the container has ended."""
        with self._output.open("ab") as file:
            skip = file.tell()
            for piece in self._engine.logs(self.record.container):
                file.write(piece[skip:])
                file.flush()
                skip = max(0, skip - len(piece))
                if self._closed.is_set():
                    return

    def _end(self, code: int) -> None:
        with self._lock:
            self._code = code
            if self._handle >= 0:
                os.eventfd_write(self._handle, 1)


def _code(state: Mapping[str, Any]) -> int:
    """The exit code; negative for SIGKILL, as for a local process. The runtime itself never exits with that code."""
    code = int(state["ExitCode"])
    return -SIGKILL if code == 128 + SIGKILL else code
