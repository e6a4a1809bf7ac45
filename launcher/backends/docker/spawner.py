"""Members as containers: the supervisor's Spawner over a Docker engine.

The engine may restart, and the supervisor may die, at any moment. A container is found again by its label, never by
memory alone: before a member starts anew every container with its mark is ended, so a claim of an earlier one is proved
dead. Ended containers stay, with the engine's copy of their output, until their run has left the queue.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGKILL
from typing import Any

import msgspec

from launcher.backends.docker import container
from launcher.backends.docker.container import Place
from launcher.backends.local.environment import machine
from launcher.backends.local.spawner import UNKNOWN, Launch, Live, NeverStarts, NotYet
from launcher.backends.local.state import Record, replace
from launcher.errors import NotFound, SlipwayError, Unreachable
from launcher.images.engine import Engine
from launcher.reasons import Reason

POLL = 2.0  # seconds between questions to an engine that went away


class DockerSpawner:
    """The containers of one engine: the one that the submitter's environment names."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {name: value for name, value in environ.items() if name.startswith("DOCKER_")}
        self._engine: Engine | None = None
        self._pulls: dict[str, _Pull] = {}

    def spawn(self, launch: Launch, record: Record) -> Live:
        """Raises NotYet while the image is pulled, NeverStarts for an image that can not be had or has no runtime."""
        engine = self.engine()
        role = launch.member.rpartition("-")[0]
        self._image(engine, container.image(launch.job, role))
        launch.work.mkdir(parents=True, exist_ok=True)
        private = launch.work.parent / "private.json"
        replace(private, json.dumps(dict(launch.private)).encode())
        home = launch.environment.get("HOME")
        files = container.credentials(launch.private, Path(home) if home else None)
        place = Place(f"{os.getuid()}:{os.getgid()}", launch.work, private, record.gpus, files)
        if container.user(launch.job, place) != place.user:
            _open_to_others(launch.work, private)
        tuning = {name: value for name, value in launch.environment.items() if name == "SLIPWAY_TUNING"}
        chosen = container.settings(launch.job, launch.run, launch.member, record.starts, launch.mark, place, tuning)
        if container.network(launch.job) == container.NETWORK:
            engine.ensure_network(container.NETWORK)
        try:
            made = engine.start_container(chosen)
        except SlipwayError as error:
            raise _for_good(error, container.image(launch.job, role)) or error from None
        known = msgspec.structs.replace(record, container=made, machine=machine())
        return _Container(engine, known, launch.output)

    def adopt(self, record: Record, output: Path) -> Live | None:
        """Also one that has ended: how is still to be read. Raises Unreachable."""
        try:
            self.engine().container(record.container)
        except NotFound:
            return None
        return _Container(self.engine(), record, output)

    def sweep(self, mark: str) -> bool:
        try:
            engine = self.engine()
            for one in engine.containers({container.MARK: mark}, running=True):
                engine.kill(one["Id"], "SIGKILL")
            return not engine.containers({container.MARK: mark}, running=True)
        except SlipwayError:
            return False  # an engine that does not answer may still run it

    def reap(self, known: frozenset[int]) -> None:
        """Nothing falls to the supervisor: a container's processes end with it."""

    def forget(self, run: str) -> None:
        """Removes the ended containers of a run that has left the queue."""
        with contextlib.suppress(SlipwayError):
            for one in self.engine().containers({container.RUN: run}, running=False):
                self.engine().remove_container(one["Id"])

    def engine(self) -> Engine:
        """Raises Unreachable."""
        if self._engine is None:
            self._engine = Engine(self._environ)
        return self._engine

    def _image(self, engine: Engine, reference: str) -> None:
        """Makes sure that the image is there and has the runtime. A pull goes on in a thread of its own."""
        try:
            found = engine.inspect(reference)
        except NotFound:
            if "/" not in reference:
                raise NeverStarts(Reason.IMAGE_PULL, container.unbuilt(reference)) from None
            pull = self._pulls.setdefault(reference, _Pull(engine, reference))
            if pull.running:
                raise NotYet(f"pulling {reference}") from None
            del self._pulls[reference]
            raise NeverStarts(Reason.IMAGE_PULL, pull.error or f"{reference} was pulled and is not there") from None
        self._pulls.pop(reference, None)
        if container.RUNTIME_LABEL not in (found["Config"].get("Labels") or {}):
            raise NeverStarts(Reason.CONFIG_ERROR, f"image {reference} has no Slipway runtime: {container.FIX}")


def spawners() -> Callable[[Mapping[str, str]], DockerSpawner]:
    """A spawner for each engine that submitters' environments name, made when it is first asked for."""
    made: dict[str, DockerSpawner] = {}

    def spawner(environ: Mapping[str, str]) -> DockerSpawner:
        return made.setdefault(environ.get("DOCKER_HOST", ""), DockerSpawner(environ))

    return spawner


def _open_to_others(work: Path, private: Path) -> None:
    """Lets a container of another user in. On this machine the folder above keeps everybody else out."""
    work.parent.chmod(0o700)
    work.chmod(0o777)
    private.chmod(0o644)


def _for_good(error: SlipwayError, reference: str) -> NeverStarts | None:
    """A refusal of the engine that no second try can mend, by its words: it has no codes for them."""
    text = str(error)
    if "could not select device driver" in text or "nvidia-container-cli" in text:
        return NeverStarts(Reason.CONFIG_ERROR, f"{container.TOOLKIT} ({text})")
    if f'exec: "{container.ENTRYPOINT[0]}"' in text:
        what = f"image {reference} has no `{container.ENTRYPOINT[0]}` on its PATH"
        return NeverStarts(Reason.CONFIG_ERROR, f"{what}: {container.FIX}")
    return None


class _Pull:
    def __init__(self, engine: Engine, reference: str) -> None:
        self.error = ""
        self._engine, self._reference = engine, reference
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._engine.pull(self._reference)
        except SlipwayError as error:
            self.error = f"{self._reference} can not be pulled: {error}"


class _Container:
    """A container that was started or adopted. A thread copies its output, and makes `fileno` readable at its end."""

    def __init__(self, engine: Engine, record: Record, output: Path) -> None:
        self.record = record
        self._engine = engine
        self._output = output
        self._lock = threading.Lock()
        self._handle = os.eventfd(0, os.EFD_CLOEXEC)
        self._code: int | None = None
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
        """Until it has ended. An engine that is away says nothing about the container: it is asked again."""
        while not self._closed.is_set():
            try:
                self._copy()
                state = self._engine.container(self.record.container)
                if not state["Running"]:
                    return self._end(_code(state))
            except NotFound:
                return self._end(UNKNOWN)
            except (Unreachable, OSError):
                self._closed.wait(POLL)

    def _copy(self) -> None:
        """Follows the engine's copy of the output, from where our file ends, until the container has ended."""
        with self._output.open("ab") as file:
            there = file.tell()
            for piece in self._engine.logs(self.record.container):
                file.write(piece[there:])
                file.flush()
                there = max(0, there - len(piece))
                if self._closed.is_set():
                    return

    def _end(self, code: int) -> None:
        with self._lock:
            self._code = code
            if self._handle >= 0:
                os.eventfd_write(self._handle, 1)


def _code(state: Mapping[str, Any]) -> int:
    """As of a process of our own, where a signal is negative. SIGKILL is never the runtime's own way to end."""
    code = int(state["ExitCode"])
    return -SIGKILL if code == 128 + SIGKILL else code
