"""Namespaces (processes, mounts, network) in which a cluster's programs run, and nothing outlives its owner.

Process 1 of the namespaces ends when the pipe to the test process closes, and with it ends every process and every
mount; the network goes with the last process. What can be left are a folder and cgroups: the next start removes those
of owners that are gone.

Cluster number N (a lock file says whose) has the addresses 198.18.N.0/24 (.1 this machine, with S3; .2 the control
plane; .11 and up the nodes) and 198.19.N.0/24 (pods, 64 a node), of the block set aside for tests of network devices.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

BASE = Path(os.environ.get("SLIPWAY_CLUSTERS", Path(tempfile.gettempdir()) / "slipway-clusters"))
CGROUPS = Path("/sys/fs/cgroup")
HIGHEST = 200
T = TypeVar("T")


class NoCluster(Exception):
    """Why no cluster can run here, in one line."""


class Ended(RuntimeError):
    """A program that was waited for is gone."""


def wait_for(what: str, try_it: Callable[[], T], timeout: float = 60, every: float = 0.1) -> T:
    """What `try_it` gives, as soon as that is true. Raises TimeoutError with its last error."""
    deadline = time.monotonic() + timeout
    last: object = "no answer"
    while True:
        try:
            if found := try_it():
                return found
            last = found
        except Ended:
            raise
        except Exception as error:
            last = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:.0f} s for {what}: {str(last)[-1500:]}")
        time.sleep(every)


@dataclass
class Daemon:
    """A program in the sandbox. It can be killed, stopped in its tracks, and started again as it was."""

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    ready: Callable[[], object] | None = field(default=None, repr=False)

    def start(self, timeout: float = 60) -> None:
        """Starts it and waits until it answers, where there is a way to ask."""
        self.launch()
        self.wait(timeout)

    def launch(self) -> None:
        if self.process is not None:
            self.process.wait(10)  # it ended by itself; one that lives is not started twice
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=without_proxies(),
            )

    def wait(self, timeout: float = 60) -> None:
        if self.ready is not None:
            wait_for(f"{self.name} to answer", self._check, timeout, every=0.05)

    def _check(self) -> object:
        if not self.alive:
            raise Ended(f"{self.name} ended at once; the end of its log:\n{self.tail()}")
        return self.ready is None or self.ready()

    def tail(self, size: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-size:]

    @property
    def pid(self) -> int | None:
        """Of the program itself, outside; nsenter stands between it and us."""
        if self.process is None or self.process.poll() is not None:
            return None
        return next(iter(children(self.process.pid)), None)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        if pid := self.pid:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """SIGKILL, as when a machine runs out of memory."""
        self.end(signal.SIGKILL)

    def stop(self, patience: float = 10) -> None:
        """SIGTERM, then SIGKILL."""
        self.end(signal.SIGTERM, patience)

    def end(self, number: int, patience: float = 10) -> None:
        if self.process is None:
            return
        wait_for(f"nsenter to start {self.name}", lambda: self.pid or not self.alive, 5, every=0.01)
        self.signal(number)
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.process.wait(10)
        self.process = None

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Sandbox:
    """`with Sandbox(pause) as box:`; `box.daemon(...)` makes programs that run inside, `box.run(...)` runs one now."""

    def __init__(self, pause: Path) -> None:
        self._pause = pause
        self._lock: IO[bytes]
        self._init: subprocess.Popen[bytes] | None = None
        self._daemons: list[Daemon] = []
        self.number = 0
        self.pid = 0  # of process 1, as seen outside

    def __enter__(self) -> Sandbox:
        clean_leftovers()
        self._lock, self.number = _take_number()
        self.folder = BASE / str(self.number)
        self.folder.mkdir(mode=0o755)
        (self.folder / "log").mkdir()
        try:
            self._namespaces()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._init is not None:
            self._init.communicate()  # closes its input, and waits
            for daemon in self._daemons:
                daemon.end(signal.SIGKILL)
        remove(self.number)
        self._lock.close()

    @property
    def host(self) -> str:
        """This machine, as pods see it: servers of a test that listen on it are reached from pods."""
        return f"198.18.{self.number}.1"

    @property
    def address(self) -> str:
        """The control plane's, reached from pods and from this machine."""
        return f"198.18.{self.number}.2"

    @property
    def pods(self) -> str:
        return f"198.19.{self.number}.0/24"

    def node_address(self, index: int) -> str:
        return f"198.18.{self.number}.{10 + index}"

    def node_pods(self, index: int) -> str:
        return f"198.19.{self.number}.{64 * (index - 1)}/26"

    def cgroup(self, index: int) -> str:
        """A root for the cgroups of a node; two kubelets under one would remove each other's pods."""
        return f"slipway-{self.number}-n{index}"

    def inside(self, command: Sequence[object], network: bool = True) -> list[str]:
        """The command in the namespaces; without `network`, in this machine's network."""
        # not `ip netns exec`: that mounts another /sys, without cgroups
        return ["nsenter", "-t", str(self.pid), "-m", *(["-n"] if network else []), "-p", "--", *map(str, command)]

    def daemon(
        self,
        name: str,
        command: Sequence[object],
        ready: Callable[[], object] | None = None,
        network: bool = True,
    ) -> Daemon:
        made = Daemon(name, self.inside(command, network), self.folder / "log" / f"{name}.log", ready=ready)
        self._daemons.append(made)
        return made

    def run(self, *command: object, data: bytes | None = None, timeout: float = 60) -> str:
        return run(*self.inside(command), data=data, timeout=timeout)

    def _namespaces(self) -> None:
        flags = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._init = subprocess.Popen(
            ["unshare", *flags, str(self._pause), "owner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C ends the owner, and only by that the cluster
        )
        self.pid = wait_for("process 1 of the namespaces", self._first) or 0
        # what these programs keep in fixed places stays in the cluster's folder, and goes with it
        script = "mount --make-rshared / && mount -t tmpfs tmpfs /run && ip link set lo up\n"
        for place in ("/etc", "/var/lib", "/var/log"):
            upper = self.folder / "private" / place.strip("/").replace("/", "-")
            (upper / "upper").mkdir(parents=True)
            (upper / "work").mkdir()
            options = f"lowerdir={place},upperdir={upper}/upper,workdir={upper}/work"
            script += f"mount -t overlay overlay -o {options} {place}\n"
        script += "sysctl -qw net.ipv4.ip_forward=1\n"  # from one node's pods to the other's
        self.run("sh", "-ec", script)
        link = f"slipway{self.number}"
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        run("ip", "addr", "add", f"{self.host}/24", "dev", link)
        run("ip", "link", "set", link, "up")
        self.add_address(self.address)
        self.run("ip", "link", "set", "eth0", "up")
        run("ip", "route", "replace", self.pods, "via", self.address)
        # this machine's addresses in all clusters' networks, and no default route: the rest is unreachable at once
        self.run("ip", "route", "add", "198.18.0.0/15", "via", self.host)

    def add_address(self, address: str) -> None:
        self.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")

    def _first(self) -> int | None:
        assert self._init is not None
        if self._init.poll() is not None:
            error = self._init.stderr.read().decode() if self._init.stderr else ""
            raise NoCluster(f"no namespaces here: {error.strip()[:200]}")
        found = children(self._init.pid)
        if not found or Path(f"/proc/{found[0]}/comm").read_text().strip() != self._pause.name:
            return None
        return found[0]


def without_proxies() -> dict[str, str]:
    """This environment; what a cluster's programs say to each other goes through nobody's proxy."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def run(*command: object, data: bytes | None = None, timeout: float = 60) -> str:
    """Its output. Raises RuntimeError with what it said."""
    done = subprocess.run(list(map(str, command)), input=data, capture_output=True, check=False, timeout=timeout)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace")[-4000:]
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.returncode}\n{said}")
    return done.stdout.decode(errors="replace")


def _try_lock(number: int) -> IO[bytes] | None:
    file = (BASE / f"{number}.lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _take_number() -> tuple[IO[bytes], int]:
    for number in range(1, HIGHEST + 1):
        if lock := _try_lock(number):
            remove(number)
            return lock, number
    raise NoCluster(f"all {HIGHEST} numbers for clusters are taken: see {BASE}")


def leftovers() -> Iterator[int]:
    """The numbers of clusters of which something is there."""
    if BASE.exists():
        yield from sorted(int(one.name) for one in BASE.iterdir() if one.is_dir() and one.name.isdigit())


def clean_leftovers() -> None:
    """Removes what owners that are gone left behind; living clusters hold their locks."""
    BASE.mkdir(mode=0o755, parents=True, exist_ok=True)
    for number in leftovers():
        if lock := _try_lock(number):
            with lock:
                remove(number)


def cgroup_folders(number: int) -> list[Path]:
    """The cgroups of a cluster's nodes, in every hierarchy."""
    roots = [CGROUPS, *(one for one in CGROUPS.iterdir() if one.is_dir())]
    return [found for root in roots for found in root.glob(f"slipway-{number}-n*")]


def remove(number: int) -> None:
    """Removes a cluster's cgroups and folder. Whoever calls it holds the number's lock."""
    deadline = time.monotonic() + 20
    while folders := cgroup_folders(number):
        for top in folders:
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):  # the kernel is not yet done with the processes in it
                    Path(folder).rmdir()
        if time.monotonic() > deadline:
            raise RuntimeError(f"cgroups that do not go away: {', '.join(map(str, folders))}")
        time.sleep(0.02)
    shutil.rmtree(BASE / str(number), ignore_errors=True)
