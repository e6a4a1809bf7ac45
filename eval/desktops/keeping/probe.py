"""What this machine allows: each way to separate a desktop from the rest is tried, in a process that ends after it.

The answer comes from what happened and not from what files say: a limit counts when it refused something.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from eval.desktops.keeping import cgroups, kernel

OWN_USERS: Final = 1_900_000_000  # above what systemd and the subordinate ids of users take; plus a process id
SMALL_USERS: Final = 20_000  # where a container maps 65,536 ids only; plus a process id modulo 40,000


def _attempt(work: Callable[[], None]) -> str:
    """Does `work` in a child. "" where it went well, else what went wrong."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            work()
        except Exception as error:
            os.write(write, str(error).encode()[:500] or b"failed")
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        message = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return message or ("" if status == 0 else f"ended with {os.waitstatus_to_exitcode(status)}")


def _user() -> None:
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEW_USER)
    kernel.map_own_ids(uid, gid)


def _mounts() -> None:
    kernel.unshare(kernel.NEW_MOUNTS)
    kernel.private_mounts()
    kernel.read_only_mounts()
    kernel.tmpfs("/tmp", 65536, 64, 0o700, os.geteuid(), os.getegid())
    Path("/tmp/root/usr").mkdir(parents=True)
    kernel.bind("/tmp/root", "/tmp/root")
    kernel.bind("/usr", "/tmp/root/usr", read_only=True)
    try:
        Path("/tmp/full").write_bytes(bytes(1 << 20))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    else:
        raise OSError(errno.EINVAL, "a size-limited tmpfs took more than its size")
    kernel.change_root("/tmp/root")
    if list(Path("/").iterdir()) != [Path("/usr")]:
        raise OSError(errno.EINVAL, "a new root shows more than what was put into it")


def _pids() -> None:
    kernel.unshare(kernel.NEW_MOUNTS | kernel.NEW_PIDS)

    def look() -> None:
        kernel.private_mounts()
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        others = [path.name for path in Path("/proc").iterdir() if path.name.isdigit() and path.name != "1"]
        if os.getpid() != 1 or others:
            raise OSError(errno.EINVAL, "a new PID namespace shows other processes")

    if message := _attempt(look):
        raise OSError(errno.EPERM, message)


def _network() -> None:
    kernel.unshare(kernel.NEW_NETWORK)
    kernel.loopback_up()


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _forks(group: cgroups.ControlGroup) -> None:
    for descriptor in group.open():
        os.write(descriptor, b"0")
    children = []
    try:
        for _ in range(16):
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except OSError:
        return
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    raise OSError(errno.EINVAL, "16 processes were made where 4 are allowed")


def _memory(group: cgroups.ControlGroup) -> None:
    child = os.fork()
    if child == 0:
        for descriptor in group.open():
            os.write(descriptor, b"0")
        os.write(os.open(os.devnull, os.O_WRONLY), b"\1" * (96 << 20))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise OSError(errno.EINVAL, "96 MiB were used where 32 are allowed")


def probe() -> dict[str, Any]:
    """What works here, as the fields of eval.desktops.isolation.Isolation."""
    missing: list[str] = []
    namespaces: list[str] = []
    first: list[Callable[[], None]] = []
    root = os.geteuid() == 0
    if message := _attempt(_mounts):
        if user := _attempt(_user):
            missing.append(f"user namespace: {user}")
        else:
            namespaces.append("user")
            first = [_user]
    ways = (
        ("mount", _mounts),
        ("pid", _pids),
        ("ipc", lambda: kernel.unshare(kernel.NEW_IPC)),
        ("network", _network),
    )
    for name, way in ways:

        def both(way: Callable[[], None] = way) -> None:
            for step in (*first, way):
                step()

        if name == "pid" and "mount" not in namespaces:
            missing.append("pid namespace: it needs the mount namespace")
        elif name == "ipc" and not root:
            continue  # of the same user: the X server would take its segments for ours
        elif message := _attempt(both):
            missing.append(f"{name} namespace: {message}")
        else:
            namespaces.append(name)
    if namespaces == ["user"]:
        namespaces = []
    users = 0
    if root and "mount" not in namespaces:
        missing.append("a user of its own: its name needs the mount namespace")
    elif root and "user" not in namespaces:
        for base, number in ((OWN_USERS, OWN_USERS + os.getpid()), (SMALL_USERS, SMALL_USERS + os.getpid() % 40_000)):
            if not (message := _attempt(functools.partial(_become, number))):
                users = base
                break
        else:
            missing.append(f"a user of its own: {message}")
    elif not root:
        missing.append("a user of its own: only root can give one")
    where, reasons = cgroups.usable(
        cgroups.parents(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    )
    missing += reasons
    proven: dict[str, str] = {}
    if where.folders:
        group = cgroups.ControlGroup(where, f"slipway-probe-{os.getpid()}", 4, 32 << 20)
        try:
            for controller, trial in (("pids", _forks), ("memory", _memory)):
                if controller not in where.folders:
                    continue
                if message := _attempt(functools.partial(trial, group)):
                    missing.append(f"cgroup {controller}: {message}")
                else:
                    proven[controller] = where.folders[controller]
        finally:
            group.close()
    return {
        "namespaces": namespaces,
        "users": users,
        "cgroups": proven,
        "cgroup_version": {name: where.version[name] for name in proven},
        "root": root,
        "missing": missing,
    }


def main() -> int:
    """Prints what works as JSON."""
    sys.stdout.write(json.dumps(probe()) + "\n")
    return 0
