"""The agent's side of a desktop: the process under which all of the agent's programs run.

With namespaces this process is PID 1 of a PID namespace: it sees no process outside, nothing inside can end it, and
with it the kernel ends everything inside. It holds the rights that it needs to start programs; the programs get none of
them. It talks to the keeper over a socket of packets, each a JSON object:

    to the guest     {"start": number, "argv": [...], "environ": {...}}
    from the guest   {"ready": home as seen inside}, {"started": number, "pid": pid},
                     {"refused": number, "error": text}, {"ended": number, "status": as subprocess gives it}
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import selectors
import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from eval.desktops.keeping import kernel

PACKET: Final = 1 << 20
GTK_SETTINGS: Final = """[Settings]
gtk-enable-animations=0
gtk-cursor-blink=0
gtk-recent-files-enabled=0
"""
# What the guest sees of the machine, read-only: programs, their settings, and what was computed of their fonts
SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"),
    *("/var/cache/fontconfig", "/var/lib/libreoffice", "/var/spool/libreoffice"),
)
# What of it is no program's business, whoever may read it: keys, a pod's jobs, folders in which images keep code that
# they run, and with it configurations and results
SECRETS: Final = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d"),
    *("/etc/ssh", "/etc/ssl/private", "/etc/krb5.keytab", "/etc/docker", "/etc/kubernetes", "/etc/rancher"),
    *("/etc/environment", "/etc/fstab", "/etc/pip.conf", "/etc/apt/auth.conf", "/etc/apt/auth.conf.d"),
    *("/etc/slipway", "/usr/src", "/usr/local/src"),
)
# OSWorld's judges, where Debian's own Python has them
JUDGES: Final = tuple(f"usr/{lib}/python3*/*-packages/desktop_env" for lib in ("lib", "local/lib"))
# Our own packages: how tasks are made and judged. They may lie among programs, as in a folder of conda
PACKAGES: Final = tuple(str(Path(__file__).parents[3] / name) for name in ("eval", "launcher", "training"))
DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
LINKS: Final = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}


@dataclass(frozen=True)
class GuestPlan:
    """What a guest gets. Sizes in bytes.

    namespaces  of user, pid, mount, ipc, network: those that the machine allows and the session wants
    uid         the user and group of its programs; None: this process's own
    folder      the session's folder; `folder`/bus holds the sockets and the cookie that the guest may use
    shown       more files and folders of the machine that the guest sees, read-only
    folders     more folders of its own, which its programs may write
    browser     the descriptor that a debugged browser gets as 3 and 4
    """

    folder: str
    display: str
    environ: dict[str, str]
    uid: int | None = None
    namespaces: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    home_size: int = 256 << 20
    temporary_size: int = 128 << 20
    files: int = 65536
    settings: dict[str, str] = field(default_factory=dict)
    browser: int = -1


def home_inside(plan: GuestPlan) -> str:
    """The home folder as the guest's programs see it."""
    return "/home/user" if "mount" in plan.namespaces else f"{plan.folder}/home"


def start(plan: GuestPlan, joins: list[int]) -> tuple[int, socket.socket]:
    """Starts the guest; (its process id as seen from here, the socket to it). `joins`: see `cgroups.ControlGroup.open`.

    Raises OSError with the step that failed.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    first = os.fork()
    if first == 0:
        ours.close()
        os.close(read)
        _enter(plan, joins, theirs, write)
    theirs.close()
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = json.loads(pipe.readline() or b'{"error": "the guest ended while it started"}')
    if "error" in told:
        os.waitpid(first, 0)
        ours.close()
        raise OSError(told["error"])
    pid = first
    if "pid" in plan.namespaces:  # the process between the two ended and left PID 1 to us
        os.waitpid(first, 0)
        pid = told["pid"]
    ours.send(b"{}")
    return pid, ours


def _enter(plan: GuestPlan, joins: list[int], channel: socket.socket, write: int) -> None:
    """In the child: the namespaces, then the mounts, then the loop. Never returns."""
    try:
        wanted = plan.namespaces
        if "user" in wanted:
            uid, gid = os.geteuid(), os.getegid()
            kernel.unshare(kernel.NEW_USER)
            kernel.map_own_ids(uid, gid)
        names = (
            ("mount", kernel.NEW_MOUNTS),
            ("pid", kernel.NEW_PIDS),
            ("ipc", kernel.NEW_IPC),
            ("network", kernel.NEW_NETWORK),
        )
        for name, flag in names:
            if name in wanted:
                kernel.unshare(flag)
        if "pid" in wanted:
            child = os.fork()
            if child:
                os.write(write, json.dumps({"pid": child}).encode() + b"\n")
                os._exit(0)
        else:
            os.write(write, json.dumps({"pid": os.getpid()}).encode() + b"\n")
        channel.recv(PACKET)  # the keeper is our parent from now on
        kernel.die_with_parent(signal.SIGKILL)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(write, json.dumps({"error": str(error)}).encode() + b"\n")
        os._exit(1)
    status = 1
    try:
        os.close(write)
        _furnish(plan)
        Guest(plan, joins, channel).serve()
        status = 0
    except OSError as error:
        with contextlib.suppress(OSError):
            channel.send(json.dumps({"failed": str(error)}).encode())
    finally:
        os._exit(status)


def _furnish(plan: GuestPlan) -> None:
    """The guest's own root: the machine's programs (SYSTEM) and `plan.shown`, /proc, /dev, /tmp, /home and /run of its
    own, and the session's sockets at their places. Nothing else of the machine is there."""
    uid, gid = _ids(plan)
    if "network" in plan.namespaces:
        kernel.loopback_up()
    if "mount" not in plan.namespaces:
        for name in ("home", "tmp"):
            Path(plan.folder, name).mkdir(mode=0o700)
            os.chown(f"{plan.folder}/{name}", uid, gid)
        return
    root, umask = f"{plan.folder}/root", os.umask(0o022)
    Path(root).mkdir()
    kernel.private_mounts()
    kernel.read_only_mounts()  # those of the machine; what is mounted from here on can be written
    kernel.tmpfs(root, 1 << 20, 4096, 0o755, os.geteuid(), os.getegid())
    late = [path for path in plan.shown if path.startswith(("/tmp/", "/home/", "/run/"))]  # which are not there yet
    for path in sorted({*SYSTEM, *plan.shown}.difference(late)):  # a folder before what lies in it
        _show(path, root)
    # Before the old root goes: in a user namespace the kernel allows a new /proc only where one is seen whole
    Path(root, "proc").mkdir()
    if "pid" in plan.namespaces:
        kernel.mount("proc", f"{root}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    else:
        kernel.bind("/proc", f"{root}/proc")
    _devices(root)
    small = plan.temporary_size // 8
    sizes = {"tmp": plan.temporary_size, "dev/shm": plan.temporary_size, "run": small, "home": plan.home_size}
    for name, size in sizes.items():
        mode = 0o1777 if name in ("tmp", "dev/shm") else 0o755
        Path(root, name).mkdir(exist_ok=True)
        kernel.tmpfs(f"{root}/{name}", size, plan.files, mode, os.geteuid(), os.getegid())
    for path in plan.folders:
        Path(f"{root}{path}").mkdir(parents=True)
        kernel.tmpfs(f"{root}{path}", plan.home_size, plan.files, 0o755, os.geteuid(), os.getegid())
    for path in (f"{plan.folder}/bus", f"/tmp/.X11-unix/X{plan.display[1:]}", *sorted(late)):
        _show(path, root)
    hidden = [Path(f"{root}{path}") for path in (*SECRETS, *PACKAGES)]
    hidden += [path for pattern in JUDGES for path in Path(root).glob(pattern)]
    for file in hidden:
        _cover(file)
    kernel.change_root(root)
    for folder in (f"/run/user/{uid}", "/home/user", *plan.folders):
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(folder, uid, gid)
    kernel.seal_root()
    os.umask(umask)


def _show(path: str, root: str) -> None:
    """Shows a file or folder of the machine at the same path below `root`; a link stays one. What is not there, or is
    seen already, is left out."""
    source, target = Path(path), Path(f"{root}{path}")
    if not os.path.lexists(source) or os.path.lexists(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink() and path in SYSTEM:
        target.symlink_to(source.readlink())
        return
    if source.is_dir():
        target.mkdir()
    else:
        target.touch()
    kernel.bind(path, str(target), read_only=True)


def _cover(path: Path) -> None:
    """An empty file or folder in the place of one that is there."""
    if path.is_dir():
        kernel.tmpfs(str(path), 4096, 4, 0o555, os.geteuid(), os.getegid())
    elif path.exists():
        kernel.bind("/dev/null", str(path))


def _devices(root: str) -> None:
    """A /dev with what every program may have. The terminals are the guest's own, or it has none."""
    folder = Path(root, "dev")
    for name in ("", "shm", "pts"):
        (folder / name).mkdir()
    for name in DEVICES:
        (folder / name).touch()
        kernel.bind(f"/dev/{name}", f"{folder}/{name}")
    for name, there in LINKS.items():
        (folder / name).symlink_to(there)
    with contextlib.suppress(OSError):
        options = "newinstance,ptmxmode=0666,max=64"
        kernel.mount("devpts", f"{folder}/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, options)


def _ids(plan: GuestPlan) -> tuple[int, int]:
    return (os.geteuid(), os.getegid()) if plan.uid is None else (plan.uid, plan.uid)


class Guest:
    """Starts programs when the keeper asks for it, and tells it of their ends."""

    def __init__(self, plan: GuestPlan, joins: list[int], channel: socket.socket) -> None:
        self._plan = plan
        self._joins = joins
        self._channel = channel
        self._numbers: dict[int, int] = {}
        self.environ = self._environ()

    def _environ(self) -> dict[str, str]:
        uid, _ = _ids(self._plan)
        own = "mount" in self._plan.namespaces
        runtime = f"/run/user/{uid}" if own else f"{self._plan.folder}/home/.runtime"
        temporary = "/tmp" if own else f"{self._plan.folder}/tmp"
        home = home_inside(self._plan)
        return {**self._plan.environ, "HOME": home, "XDG_RUNTIME_DIR": runtime, "TMPDIR": temporary, "PWD": home}

    def serve(self) -> None:
        """Until the keeper closes the socket."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._as_guest(self._fill_home)
        self._say(ready=home_inside(self._plan))
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(wake_read, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if wake_read in ready:
                    os.read(wake_read, 4096)
                    self._reap()
                if self._channel in ready:
                    packet = self._channel.recv(PACKET)
                    if not packet:
                        return
                    order = json.loads(packet)
                    if "start" in order:
                        self._start(order["start"], order["argv"], order["environ"], bool(order.get("debugged")))

    def _say(self, **message: Any) -> None:
        self._channel.send(json.dumps(message).encode())

    def _fill_home(self) -> None:
        os.umask(0o077)
        home = Path(home_inside(self._plan))
        Path(self.environ["XDG_RUNTIME_DIR"]).mkdir(exist_ok=True)
        for version in ("3.0", "4.0"):
            settings = home / ".config" / f"gtk-{version}"
            settings.mkdir(parents=True)
            (settings / "settings.ini").write_text(GTK_SETTINGS)
        for name, text in self._plan.settings.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)

    def _as_guest(self, work: Any) -> None:
        """Does `work` in a process with the guest's user, so that it owns what it makes. Raises OSError."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(read)
                self._become()
                work()
            except Exception as error:
                os.write(write, str(error).encode()[:1000])
                os._exit(1)
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            message = pipe.read()
        os.waitpid(child, 0)
        if message:
            raise OSError(message.decode(errors="replace"))

    def _become(self) -> None:
        for descriptor in self._joins:
            os.write(descriptor, b"0")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self._plan.uid is not None:
            os.setgroups([])
            os.setresgid(self._plan.uid, self._plan.uid, self._plan.uid)
            os.setresuid(self._plan.uid, self._plan.uid, self._plan.uid)
        kernel.no_new_privileges()
        kernel.forbid_user_namespaces()

    def _start(self, number: int, argv: list[str], environ: dict[str, str], debugged: bool) -> None:
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            child = os.fork()
        except OSError as error:
            os.close(read)
            os.close(write)
            self._say(refused=number, error=str(error))
            return
        if child == 0:
            try:
                os.setsid()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                self._become()
                full = {**self.environ, **environ}
                os.chdir(full["HOME"])
                nothing = os.open(os.devnull, os.O_RDONLY)
                log = f"{full['TMPDIR']}/program-{number}.log"
                output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                for source, target in ((nothing, 0), (output, 1), (output, 2)):
                    os.dup2(source, target)
                if debugged:
                    end = fcntl.fcntl(self._plan.browser, fcntl.F_DUPFD_CLOEXEC, 10)
                    write = fcntl.fcntl(write, fcntl.F_DUPFD_CLOEXEC, 10)  # it may be 3 or 4
                    for target in (3, 4):
                        os.dup2(end, target)
                os.execvpe(argv[0], argv, full)
            except OSError as error:
                os.write(write, (error.strerror or str(error)).encode())
            finally:
                os._exit(127)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            message = pipe.read()
        if message:
            os.waitpid(child, 0)
            self._say(refused=number, error=message.decode(errors="replace"))
        else:
            self._numbers[child] = number
            self._say(started=number, pid=child)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self._numbers.pop(pid, None)
            if number is not None:
                self._say(ended=number, status=os.waitstatus_to_exitcode(status))
