"""Desktops of running members, for the pages that show them live: a way to the member's port `vnc` through its backend,
as `launcher forward` makes it, and one connection to the screen for all who look. Both end soon after the last look."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from launcher.backends.base import Entered, Forwards
from launcher.decoding import decode
from launcher.die_with_parent import die_with_parent
from launcher.errors import BadInput, NotFound, SlipwayError
from launcher.monitor.server.live.rfb import NoDesktop, RfbScreen
from launcher.protocol.read import read_run
from launcher.protocol.records import Endpoint
from launcher.spec.model import ResolvedJob
from launcher.spec.profile import Profile
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.verbs.ask_backend import BackendOf, backends

PORT: Final = "vnc"  # the port of a role that shows its desktop
MOST: Final = 16  # desktops that are watched at once
LINGERS: Final = 15.0  # seconds after the last look
PAUSE: Final = 0.2  # seconds between two pictures
AGAIN: Final = 3.0  # seconds after which one that could not be seen is tried again
ENDS: Final = 3.0  # seconds for a watch to end with the monitor
READY_LIMIT: Final = 30.0  # seconds for the backend to make the way, and to say the password
MOST_SAID: Final = 4096  # bytes of the file with the password


NUMBERS: Final = itertools.count(1)  # of pictures: none is given twice, also where a watch begins again


def with_screens(job: ResolvedJob) -> list[str]:
    """The members of the job whose role has a port `vnc`."""
    return [member for member in job.members() if PORT in dict(job.roles[member.rpartition("-")[0]].ports)]


@dataclass(frozen=True)
class LiveScreen:
    """`number` grows with each change of the screen; 0: there is no picture yet. `problem`: why there is none."""

    number: int
    width: int = 0
    height: int = 0
    problem: str = ""


class DesktopWatch:
    """One desktop, watched by a thread of its own until nobody has looked for a while."""

    def __init__(self, store: Store, run: str, job: ResolvedJob, member: str, backend_of: BackendOf) -> None:
        self._store, self._run, self._job, self._member, self._backend_of = store, run, job, member, backend_of
        self._looked = time.monotonic()
        self._lock = threading.Lock()
        self._number, self._size, self._png = 0, (0, 0), b""
        self._screen: RfbScreen | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self.problem, self.ended = "", 0.0
        self.thread = threading.Thread(target=self._watch, name=f"desktop {run} {member}", daemon=True)
        self.thread.start()

    def look(self) -> LiveScreen:
        self._looked = time.monotonic()
        with self._lock:
            return LiveScreen(self._number, *self._size, self.problem)

    def png(self) -> bytes:
        self._looked = time.monotonic()
        with self._lock:
            return self._png

    def stop(self) -> None:
        """Ends the connection and the way to the desktop."""
        self._stopped = True
        if self._screen is not None:
            self._screen.close()
        if self._process is not None:
            self._process.terminate()

    def _unwatched(self) -> bool:
        return self._stopped or time.monotonic() - self._looked > LINGERS

    def _watch(self) -> None:
        try:
            backend, port, password = self._found()
            process, here = self._way(backend, port)
            try:
                self._follow(process, here, password)
            finally:
                process.terminate()
                process.wait()
        except (SlipwayError, BadInput) as error:
            self.problem = str(error).partition("\n")[0]
        except (OSError, subprocess.SubprocessError) as error:
            self.problem = f"the desktop cannot be reached: {type(error).__name__}"
        except Exception as error:  # an SDK raises whatever it raises; who looks is told something
            self.problem = f"a fault of the monitor itself: {type(error).__name__}"
        finally:
            self.ended = time.monotonic()

    def _found(self) -> tuple[Forwards, int, str]:
        """(the run's backend, the member's port, the password, "" where none was written down)."""
        view = read_run(self._store, self._run, full=False)
        backend: object = self._backend_of(view.placed or self._job)
        attempts = view.attempts
        if not isinstance(backend, Forwards) or not isinstance(backend, Entered):
            raise NoDesktop("from here the run's backend gives no way to its members")
        if not attempts:
            raise NotFound(f"{self._member} has not begun")
        keys = RunKeys(self._run)
        record = self._store.read(keys.attempt(attempts[-1].number).endpoint(self._member))
        if record is None:
            raise NotFound(f"{self._member} is not ready yet")
        told = decode(record[0], Endpoint).ports.get(PORT, "")
        if not told.rpartition(":")[2].isdecimal():
            raise NotFound(f"{self._member} told of no port `{PORT}`")
        port = int(told.rpartition(":")[2])
        # where `eval.desktops.server --view` leaves it, for the member's own user
        command = ["cat", f"/tmp/desktop-view-{port}.json"]
        argv = backend.execute(self._run, self._member, command, tty=False)
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=READY_LIMIT, check=False)
        with suppress(ValueError, AttributeError):
            if done.returncode == 0 and len(done.stdout) <= MOST_SAID:
                return backend, port, str(json.loads(done.stdout).get("password", ""))
        return backend, port, ""

    def _way(self, backend: Forwards, port: int) -> tuple[subprocess.Popen[bytes], int]:
        """A process that forwards the member's port to one of this machine's loopback, and that port."""
        with socket.socket() as trial:
            trial.bind(("127.0.0.1", 0))
            here = int(trial.getsockname()[1])
        argv = backend.forward(self._run, self._member, [(here, port)])
        silent = subprocess.DEVNULL
        process = self._process = subprocess.Popen(die_with_parent(argv), stdin=silent, stdout=silent, stderr=silent)
        end = time.monotonic() + READY_LIMIT
        while process.poll() is None and time.monotonic() < end and not self._unwatched():
            with suppress(OSError), socket.create_connection(("127.0.0.1", here), timeout=1.0):
                return process, here
            time.sleep(0.05)
        process.kill()
        process.wait()
        raise NoDesktop("the run's backend made no way to the desktop")

    def _follow(self, process: subprocess.Popen[bytes], port: int, password: str) -> None:
        screen = self._screen = RfbScreen(port, password)
        try:
            while not self._unwatched():
                try:
                    changed = screen.changed()
                except TimeoutError:  # nothing changed; who looks keeps the picture
                    if process.poll() is not None:
                        raise NoDesktop("the way to the desktop ended") from None
                    continue
                if changed:
                    png = screen.png()
                    with self._lock:
                        self._number, self._size, self._png = next(NUMBERS), (screen.width, screen.height), png
                    time.sleep(PAUSE)
        finally:
            screen.close()


class LiveDesktops:
    """`profile`: for the settings of the backends."""

    def __init__(self, profile: Profile) -> None:
        self._backend_of = backends(profile)
        self._watches: dict[tuple[str, str, str], DesktopWatch] = {}
        self._lock = threading.Lock()

    def watch(self, store: Store, run: str, job: ResolvedJob, member: str) -> DesktopWatch:
        """The watch of a desktop, begun at the first look. Raises NotFound for a member without one, NoDesktop where
        too many are watched."""
        if member not in with_screens(job):
            raise NotFound(f"{member} shows no desktop: its role has no port `{PORT}`")
        key = (store.url, run, member)
        with self._lock:
            for other, watch in list(self._watches.items()):
                # one that ended is begun again at the next look, so a desktop that comes later is shown
                if not watch.thread.is_alive() and (other != key or time.monotonic() - watch.ended > AGAIN):
                    del self._watches[other]
            if key not in self._watches:
                if len(self._watches) >= MOST:
                    raise NoDesktop(f"{MOST} desktops are watched already; close a page of another")
                self._watches[key] = DesktopWatch(store, run, job, member, self._backend_of)
            return self._watches[key]

    def stop(self) -> None:
        with self._lock:
            for watch in self._watches.values():
                watch.stop()
            for watch in self._watches.values():
                watch.thread.join(ENDS)
