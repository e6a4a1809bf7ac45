"""Paths of a local cluster: the folder k8s/ of a clone, and this machine's files for one cluster."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from launcher.errors import BadInput, Conflict, NotFound
from launcher.files import naming
from launcher.trees import trees

CONFIG: Final = Path("k8s/kind/cluster.yaml")
STORE_PROGRAM: Final = Path(".tools/bin/versitygw")
NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?")


def tree(start: Path) -> Path:
    """The nearest folder, from `start` upwards, that contains the tree; else Slipway's own. Raises NotFound where this
    Slipway has none, as in an image."""
    for folder in (start, *start.parents, trees()):
        if (folder / CONFIG).is_file():
            return folder
    raise NotFound(f"there is no {CONFIG} in {start} or above it, and this Slipway has none")


def store_program(root: Path) -> Path | None:
    """The local store's program: built in the clone, else the one on the PATH. None: there is none."""
    if (root / STORE_PROGRAM).is_file():
        return root / STORE_PROGRAM
    found = shutil.which(STORE_PROGRAM.name)
    return Path(found) if found else None


@dataclass(frozen=True)
class ClusterFiles:
    """The paths of the files of the cluster `name`."""

    name: str
    folder: Path

    @classmethod
    def of(cls, name: str, environ: Mapping[str, str]) -> ClusterFiles:
        """Raises BadInput for a name that kind would reject."""
        if not NAME.fullmatch(name):
            raise BadInput(f"--name {name}: allowed: small letters, digits, - and ., 40 at most")
        home = Path(environ.get("HOME") or Path.home())
        state = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state")
        return cls(name, state / "slipway" / "clusters" / name)

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig for this cluster only: the user's own file and its current context do not change."""
        return self.folder / "kubeconfig"

    @property
    def creating(self) -> Path:
        """Exists while kind creates the cluster. If it is left over, the cluster is incomplete and may be created
        again."""
        return self.folder / "creating"

    @property
    def lock(self) -> Path:
        """Held by the process that makes or removes the cluster; contains its id. Outside the folder, which `down`
        removes."""
        return self.folder.parent.with_name("cluster-locks") / self.name

    @property
    def made(self) -> Path:
        """Lists what earlier runs of `up` installed, for a later run with fewer options. Deleted with the cluster."""
        return self.folder / "made.json"

    @property
    def overlay(self) -> Path:
        return self.folder / "overlay"

    @property
    def environment(self) -> Path:
        """The environment file for the shell's `source`; contains the local store's keys."""
        return self.folder / "env"

    @property
    def context(self) -> str:
        return f"kind-{self.name}"

    @property
    def kubectl(self) -> tuple[str, ...]:
        """The start of a kubectl command that can only reach this cluster."""
        return ("kubectl", "--kubeconfig", str(self.kubeconfig), "--context", self.context)


@contextmanager
def held(place: ClusterFiles) -> Iterator[None]:
    """Keeps other processes from making or removing the cluster meanwhile. Raises Conflict. The lock ends with this
    process, however it ends."""
    import fcntl

    place.lock.parent.mkdir(parents=True, exist_ok=True)
    with place.lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise Conflict(f"the cluster {place.name} is being made or removed by {holder}; wait for its end") from None
        file.truncate(0)
        file.write(f"pid {os.getpid()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def user_profile(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "slipway" / "slipway.yaml"


def write(path: Path, text: str, *, private: bool = False) -> None:
    """Writes a file atomically; `private`: only the owner can ever read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    mode = 0o600 if private else 0o644
    with naming(path), os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    part.replace(path)
