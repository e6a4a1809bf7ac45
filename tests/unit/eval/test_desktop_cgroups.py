"""Control groups for desktops: version 1, version 2 and both at once. A made tree stands in for version 2's kernel,
because the machines of the tests have version 1 only; it follows the kernel's Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from eval.desktops.keeping import cgroups
from eval.desktops.keeping.cgroups import ControlGroup, Parents

V1 = """\
31 24 0:27 / /sys/fs/cgroup ro,nosuid shared:7 - tmpfs tmpfs ro,mode=755
33 31 0:29 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory
34 31 0:30 / /sys/fs/cgroup/pids rw,nosuid shared:10 - cgroup cgroup rw,pids
35 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:11 - cgroup cgroup rw,cpu,cpuacct
"""
V2 = "31 24 0:27 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = V1 + "36 31 0:32 / /sys/fs/cgroup/unified rw,nosuid shared:12 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("mountinfo", "own", "folders", "versions"),
    [
        (V1, "9:memory:/a\n8:pids:/b\n", ("/sys/fs/cgroup/pids/b", "/sys/fs/cgroup/memory/a"), (1, 1)),
        (V2, "0::/user.slice/job.scope\n", ("/sys/fs/cgroup/user.slice/job.scope",) * 2, (2, 2)),
        (
            HYBRID,
            "9:memory:/a\n8:pids:/b\n0::/c\n",
            ("/sys/fs/cgroup/pids/b", "/sys/fs/cgroup/memory/a"),
            (1, 1),
        ),
        # a container without a namespace of its own for groups: only its part is mounted
        (
            V1.replace(" / /sys/fs/cgroup/", " /docker/x /sys/fs/cgroup/"),
            "9:memory:/docker/x\n8:pids:/docker/x/y\n",
            ("/sys/fs/cgroup/pids/y", "/sys/fs/cgroup/memory"),
            (1, 1),
        ),
        (V2, "0::/\n", ("/sys/fs/cgroup",) * 2, (2, 2)),
        (V2.replace("/sys/fs/cgroup", "/sys/fs/my\\040groups"), "0::/a\n", ("/sys/fs/my groups/a",) * 2, (2, 2)),
    ],
    ids=["1", "2", "both", "a part of 1", "2, in a namespace", "a space"],
)
def test_where_groups_are_made(mountinfo: str, own: str, folders: tuple[str, str], versions: tuple[int, int]) -> None:
    found = cgroups.parents(mountinfo, own)
    assert (found.folders["pids"], found.folders["memory"]) == folders
    assert (found.version["pids"], found.version["memory"]) == versions


FILES = {"pids": ("pids.max", "pids.events"), "memory": ("memory.max", "memory.events", "memory.swap.max")}


class Kernel:
    """A folder that behaves as a tree of groups of version 2: a new group has the files of the controllers that its
    parent gives, and a group that holds processes gives none."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._mkdir, self._rmdir, self._write = Path.mkdir, Path.rmdir, Path.write_text
        monkeypatch.setattr(Path, "mkdir", lambda path, *given, **options: self.mkdir(path, *given, **options))
        monkeypatch.setattr(Path, "rmdir", lambda path: self.rmdir(path))
        monkeypatch.setattr(Path, "write_text", lambda path, text, **options: self.write(path, text, **options))
        self.make(root, ("pids", "memory"))

    def make(self, folder: Path, controllers: tuple[str, ...]) -> None:
        self._mkdir(folder, exist_ok=True)
        self._write(folder / "cgroup.controllers", " ".join(controllers))
        for name in (
            "cgroup.subtree_control",
            "cgroup.procs",
            *(each for one in controllers for each in FILES[one]),
        ):
            self._write(folder / name, "")

    def mkdir(self, path: Path, *given: Any, **options: Any) -> None:
        if self.root not in path.parents:
            return self._mkdir(path, *given, **options)
        if path.exists() and options.get("exist_ok"):
            return None
        self.make(path, tuple((path.parent / "cgroup.subtree_control").read_text().split()))

    def rmdir(self, path: Path) -> None:
        if self.root in path.parents:
            for file in path.iterdir():
                file.unlink()
        self._rmdir(path)

    def write(self, path: Path, text: str, **options: Any) -> int:
        if self.root in path.parents and path.name == "cgroup.subtree_control":
            if (path.parent / "cgroup.procs").read_text() and path.parent != self.root:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            before = path.read_text().split()
            text = " ".join(dict.fromkeys([*before, text.removeprefix("+")]))
        return self._write(path, text, **options)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path / "groups", monkeypatch)


def both(folder: Path) -> Parents:
    return Parents({"pids": str(folder), "memory": str(folder)}, {"pids": 2, "memory": 2})


def test_in_version_2_groups_are_made_beside_the_one_that_holds_us(kernel: Kernel) -> None:
    own = kernel.root / "own"
    kernel.make(own, ("pids", "memory"))
    (own / "cgroup.procs").write_text("17\n")
    where, missing = cgroups.usable(both(own))
    assert (where.folders, missing) == ({"pids": str(kernel.root), "memory": str(kernel.root)}, [])
    assert sorted(path.name for path in kernel.root.iterdir() if path.is_dir()) == ["own"]  # no trial is left
    group = ControlGroup(where, "a-desktop", 256, 1 << 30)
    folder = kernel.root / "a-desktop"
    limits = {name: (folder / name).read_text() for name in ("pids.max", "memory.max", "memory.swap.max")}
    assert limits == {"pids.max": "256", "memory.max": str(1 << 30), "memory.swap.max": "0"}
    (descriptor,) = group.open()  # one folder for both controllers
    os.write(descriptor, b"0")
    os.close(descriptor)
    assert (folder / "cgroup.procs").read_text() == "0"
    (folder / "pids.events").write_text("max 3\n")
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n")
    assert group.refused() == {"forks": 3, "memory": 1}
    group.close()
    assert not folder.exists()


def test_a_controller_that_is_not_given_is_said(kernel: Kernel) -> None:
    kernel._write(kernel.root / "cgroup.controllers", "memory")
    own = kernel.root / "own"
    kernel.make(own, ("memory",))
    where, missing = cgroups.usable(both(own))
    assert list(where.folders) == ["memory"]
    assert missing == [f"cgroup pids: {own}: the controller pids is not given to this group"]


def test_a_group_without_rights_is_said(tmp_path: Path) -> None:
    _, missing = cgroups.usable(both(tmp_path))
    assert missing == [f"cgroup {name}: {tmp_path}: not a control group" for name in ("pids", "memory")]
