"""System calls that Python 3.11 has no function for: namespaces, mounts, and attributes of processes."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from pathlib import Path
from typing import Final

NEW_MOUNTS: Final = 0x00020000
NEW_IPC: Final = 0x08000000
NEW_USER: Final = 0x10000000
NEW_PIDS: Final = 0x20000000
NEW_NETWORK: Final = 0x40000000

MS_RDONLY: Final = 0x1
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_NOEXEC: Final = 0x8
MS_REMOUNT: Final = 0x20
MS_NOATIME: Final = 0x400
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x40000
MS_RELATIME: Final = 0x200000
ST_RELATIME: Final = 0x1000  # statvfs's name for MS_RELATIME

_MNT_DETACH: Final = 2

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Moves this process into new namespaces. A new PID namespace holds its children only."""
    _check(_libc.unshare(flags), "unshare")


def join(descriptor: int) -> None:
    """Moves this process, which has one thread, into a namespace: an open file of /proc/PID/ns (setns(2))."""
    _check(_libc.setns(descriptor, 0), "setns")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2). `data` is a file system's own options, as `size=1m,mode=0700`."""
    result = _libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, data.encode() or None)
    _check(result, f"mount on {target}")


def tmpfs(target: str, size: int, inodes: int, mode: int, uid: int, gid: int) -> None:
    """A file system in memory of at most `size` bytes and `inodes` files on the existing folder `target`."""
    data = f"size={size},nr_inodes={inodes},mode={mode:o},uid={uid},gid={gid}"
    mount("slipway", target, "tmpfs", MS_NOSUID | MS_NODEV, data)


def bind(source: str, target: str, read_only: bool = False) -> None:
    """Shows the file or folder `source` at `target`, which exists."""
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:  # in a user namespace the flags that the mount has must be given again
        have = os.statvfs(target).f_flag
        keep = have & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME) | (MS_RELATIME if have & ST_RELATIME else 0)
        mount("none", target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | keep)


def private_mounts() -> None:
    """What is mounted from now on is seen in this mount namespace only."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def read_only_mounts() -> None:
    """Whatever is mounted now becomes read-only in this mount namespace (mount_setattr(2), Linux 5.12)."""
    attributes = struct.pack("QQQQ", 0x1, 0, 0, 0)  # MOUNT_ATTR_RDONLY is set
    everything = 0x8000  # AT_RECURSIVE
    _check(_libc.syscall(442, -100, b"/", everything, attributes, len(attributes)), "mount_setattr")


def change_root(root: str) -> None:
    """Makes the mount at `root` the root of this mount namespace; nothing of the old one stays (pivot_root(2))."""
    os.chdir(root)
    _check(_libc.pivot_root(b".", b"."), "pivot_root")  # the old root is now mounted above the new one
    _check(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")


def seal_root() -> None:
    """The root's own file system becomes read-only."""
    mount("none", "/", None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def map_own_ids(uid: int, gid: int) -> None:
    """In a new user namespace: this user and group keep their numbers; there are no others."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def loopback_up() -> None:
    """Starts `lo` in a new network namespace, which has nothing else."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        fcntl.ioctl(channel, 0x8914, struct.pack("16sh14x", b"lo", 0x1))  # SIOCSIFFLAGS, IFF_UP


def die_with_parent(signal: int) -> None:
    """This process gets `signal` when its parent ends. The kernel also sends it to PID 1 of a namespace."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Processes below this one whose parent ends become its children: what D-Bus starts, above all."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def no_new_privileges() -> None:
    """Neither this process nor what it starts can gain rights through a set-uid program."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def children(pid: int) -> list[int]:
    """Every process below `pid` that can be seen, parents first."""
    by_parent: dict[int, list[int]] = {}
    for entry in (path.name for path in Path("/proc").iterdir()):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            by_parent.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    below: list[int] = []
    waiting = [pid]
    while waiting:
        direct = by_parent.get(waiting.pop(), [])
        below += direct
        waiting += direct
    return below


# seccomp(2): the machine's number in <linux/audit.h>, and its numbers of unshare and clone
_CALLS: Final = {"x86_64": (0xC000003E, 272, 56), "aarch64": (0xC00000B7, 97, 220)}
_CLONE3: Final = 435
_X32: Final = 0x40000000  # calls of another convention begin with it
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # instructions of classic BPF
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16  # places in struct seccomp_data
_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000  # plus the error's number


def forbid_user_namespaces() -> bool:
    """From now on neither this process nor what it starts can make a user namespace, in which it would have the rights
    of root over mounts and networks. False where the processor is not known. It needs `no_new_privileges`.

    clone3 is refused as unknown: its flags are in memory, which a filter cannot read; libraries use clone instead.
    """
    known = _CALLS.get(os.uname().machine)
    if known is None:
        return False
    machine, unshare_call, clone_call = known
    # each: code, steps to skip if it holds, steps to skip if not, value; the last two answer
    program = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 0, 9, machine),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 7, 0, _X32),
        (_EQUAL, 6, 0, _CLONE3),
        (_EQUAL, 1, 0, unshare_call),
        (_EQUAL, 0, 2, clone_call),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 1, 0, NEW_USER),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    packed = b"".join(struct.pack("HBBI", *step) for step in program)
    code = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    _check(_libc.prctl(_PR_SET_SECCOMP, 2, header, 0, 0), "seccomp")
    return True
