"""A keeper: starts a desktop, tells how it fares, and ends all of it when its standard input closes.

keeping.fork_server starts it with an `Order`. It reads JSON lines, and writes JSON lines:

    in    {"start": number, "argv": [...], "environ": {...}, "debugged": bool}, {"view": [...]} (argv), {"unview": true}
    out   {"ready": {...}}, {"failed": text}, {"windows": count}, what the guest says (keeping.guest),
          {"lost": "X server", "status": ..., "evidence": {...}}, {"unviewed": true}, {"stopped": true}
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from eval.desktops.keeping import cgroups, guest, kernel, probe, screen, x11

PARTS: Final = ("guest", "screen")  # each has a control group of its own


@dataclass(frozen=True)
class Order:
    """What the keeper is to make. Sizes in bytes; `users` is the number from which user ids of their own
    are given (plus the keeper's process id, which no other has), 0 leaves everything with this user; `browser` is the
    descriptor that a debugged browser speaks on."""

    folder: str
    size: tuple[int, int] = (1920, 1080)
    users: int = 0
    namespaces: tuple[str, ...] = ()
    cgroups: dict[str, str] = field(default_factory=dict)
    cgroup_version: dict[str, int] = field(default_factory=dict)
    processes: int = 256
    memory: int = 2 << 30
    home_size: int = 256 << 20
    temporary_size: int = 128 << 20
    shown: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    opengl: bool = False
    browser: int = -1


def _own_user(users: int) -> int | None:
    if not users:
        return None
    return users + (os.getpid() if users >= probe.OWN_USERS else os.getpid() % 40_000)


def _without_user(text: str) -> list[str]:
    return [line for line in text.splitlines(keepends=True) if not line.startswith("user:")]


class Keeper:
    """One desktop, from its start to its end."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._groups: list[cgroups.ControlGroup] = []
        self._screen: screen.DesktopPrograms | None = None
        self._guest = 0
        self._channel: Any = None
        self._lost: set[str] = set()
        self._windows = -1
        self._input = b""

    def run(self) -> int:
        """Until standard input closes; then nothing of the desktop is left. The exit status."""
        kernel.adopt_orphans()
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for whoever started us
        try:
            self._start()
            signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
            self._reap()
            self._serve(wake_read)
        except (OSError, screen.StartFailed, x11.XGone) as error:
            self._say(failed=str(error))
            return 1
        finally:
            self._stop()
            self._say(stopped=True)
        return 0

    def _say(self, **message: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(1, json.dumps(message).encode() + b"\n")

    def _start(self) -> None:
        order = self._order
        if order.browser >= 0:
            os.set_inheritable(order.browser, False)
        joins: list[list[int]] = [[], []]
        if order.cgroups:
            where = cgroups.Parents(order.cgroups, order.cgroup_version)
            for position, kind in enumerate(PARTS):
                group = cgroups.ControlGroup(
                    where, cgroups.group_name(order.folder, kind), order.processes, order.memory
                )
                self._groups.append(group)
                joins[position] = group.open()
        uid = _own_user(order.users)
        if uid is not None:
            self._name_user(uid)
        self._screen = screen.DesktopPrograms(order.folder, order.size, uid, joins[1], order.opengl)
        self._screen.start()
        environ = {**self._screen.environ, "XAUTHORITY": f"{order.folder}/bus/xauthority", **order.environ}
        environ.pop("XDG_CONFIG_HOME")  # the window manager's
        plan = guest.GuestPlan(
            folder=order.folder,
            display=self._screen.display,
            environ=environ,
            uid=uid,
            namespaces=tuple(order.namespaces),
            shown=tuple(order.shown),
            folders=tuple(order.folders),
            home_size=order.home_size,
            temporary_size=order.temporary_size,
            browser=order.browser,
        )
        self._guest, self._channel = guest.start(plan, joins[0])
        for descriptor in joins[0]:  # those of the screen's group are for viewers, too
            os.close(descriptor)
        told = json.loads(self._channel.recv(guest.PACKET) or b'{"failed": "the guest ended while it started"}')
        if "failed" in told:
            raise OSError(told["failed"])
        self._say(
            ready={
                "display": self._screen.display,
                "environ": self._screen.environ,
                "guest": self._guest,
                "home": told["ready"],
                "processes": self._screen.facts(),
            }
        )

    def _name_user(self, uid: int) -> None:
        """Gives the user a name, in this process's and the guest's view of /etc: D-Bus refuses a user without one."""
        kernel.unshare(kernel.NEW_MOUNTS)
        kernel.private_mounts()
        entries = {"passwd": f"user:x:{uid}:{uid}:user:/home/user:/bin/sh\n", "group": f"user:x:{uid}:\n"}
        for name, entry in entries.items():
            ours = Path(self._order.folder, name)
            ours.write_text("".join(_without_user(Path("/etc", name).read_text())) + entry)
            ours.chmod(0o644)
            kernel.bind(str(ours), f"/etc/{name}", read_only=True)

    def _serve(self, wake: int) -> None:
        assert self._screen
        assert self._screen.x
        clients = self._screen.x.atom("_NET_CLIENT_LIST")
        self._tell_windows(clients)
        with selectors.DefaultSelector() as selector:
            for source in (0, wake, self._channel, self._screen.x.socket):
                selector.register(source, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if wake in ready:
                    os.read(wake, 4096)
                    self._reap()
                if self._channel in ready:
                    packet = self._channel.recv(guest.PACKET)
                    if packet:
                        os.write(1, packet + b"\n")
                    else:
                        selector.unregister(self._channel)
                if self._screen.x.socket in ready:
                    try:
                        if clients in self._screen.x.changes():
                            self._tell_windows(clients)
                    except x11.XGone:
                        selector.unregister(self._screen.x.socket)
                        self._lose("X server", None)
                if 0 in ready and not self._orders():
                    return

    def _tell_windows(self, atom: int) -> None:
        assert self._screen
        assert self._screen.x
        count = len(self._screen.x.property(atom))
        if count != self._windows:
            self._windows = count
            self._say(windows=count)

    def _orders(self) -> bool:
        data = os.read(0, 1 << 16)
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            if line:
                self._order_one(line)
        return bool(data)

    def _order_one(self, line: bytes) -> None:
        assert self._screen
        message = json.loads(line)
        try:
            if "view" in message:
                self._screen.start_viewer(message["view"])
            elif "unview" in message:
                self._screen.end_viewers()
                self._say(unviewed=True)
            else:
                self._channel.send(line)
        except (OSError, screen.StartFailed) as error:
            if "start" in message:
                self._say(refused=message["start"], error=str(error))

    def _reap(self) -> None:
        """Waits for what ended: ours, and what D-Bus or a program left to us."""
        assert self._screen
        names = {process.pid: name for name, process in self._screen.processes.items()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if pid in names:
                self._screen.processes[names[pid]].returncode = code
                if not names[pid].startswith(screen.VIEWER):
                    self._lose(names[pid], code)
            elif pid == self._guest:
                self._guest = 0
                self._lose("guest", code)

    def _lose(self, name: str, status: int | None) -> None:
        """Tells of the end of a part, once, with what is needed to tell the agent's doing from a failure of ours."""
        if name in self._lost:
            return
        self._lost.add(name)
        refused = [group.refused() for group in self._groups]
        evidence: dict[str, Any] = {"refused": dict(zip(PARTS, refused, strict=False))}
        if name == "window manager" and self._screen and self._screen.x:
            evidence["x_answers"] = self._x_answers()
        self._say(lost=name, status=status, evidence=evidence, log=self._screen.tail() if self._screen else "")

    def _x_answers(self) -> bool:
        assert self._screen
        assert self._screen.x
        try:
            self._screen.x.atom("_NET_CLIENT_LIST")
        except x11.XGone:
            return False
        return True

    def _stop(self) -> None:
        """Ends every process below this one, waits for the last, and removes folders, sockets and groups."""
        if self._screen:
            self._screen.end_viewers()  # first, so that a video ends with the desktop as the agent left it
        if self._channel:
            self._channel.close()
        signal.set_wakeup_fd(-1)
        while True:
            for pid in kernel.children(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        if self._screen:
            for process in self._screen.processes.values():
                process.returncode = process.returncode or 0  # it was waited for above
            self._screen.close()
        for group in self._groups:
            group.close()
        shutil.rmtree(self._order.folder, ignore_errors=True)


def sweep(folder: str, display: str, cgroup_folders: dict[str, str]) -> None:
    """Ends and removes what is left of a desktop whose keeper was killed: its processes name its folder."""
    mark = folder.encode()
    for entry in (path.name for path in Path("/proc").iterdir()):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{entry}/cmdline").read_bytes() + Path(f"/proc/{entry}/environ").read_bytes()
                if mark + b"/" in text:
                    os.kill(int(entry), signal.SIGKILL)
    if display:
        screen.remove_socket(display)
    for kind in PARTS:
        for parent in set(cgroup_folders.values()):
            cgroups.remove(Path(parent, cgroups.group_name(folder, kind)))
    shutil.rmtree(folder, ignore_errors=True)
