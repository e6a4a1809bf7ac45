"""How many threads each process of a command may start: OMP_NUM_THREADS, the same on every backend.

A rank's CPUs belong to all processes that its command starts. torchrun gives its processes one thread each, but only
where the variable is not set at all; eight processes with the CPUs of the whole rank start eight times too many.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from launcher.spec.model import Role

THREADS: Final = "OMP_NUM_THREADS"
PROCESSES: Final = "PET_NPROC_PER_NODE"  # what torchrun reads
_TORCHRUN: Final = re.compile(r"--nproc[-_]per[-_]node(?:=|\s+)[\"']?(\w+)")
# the number over all ranks
_ACCELERATE: Final = re.compile(r"\baccelerate\s+launch\b.*?--num[-_]processes(?:=|\s+)[\"']?(\d+)", re.DOTALL)


def threads(role: Role, command: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """The CPUs of one process of a rank, at least 1.

    command  the role's, by default
    environ  the command's environment; by default what the job says of it

    >>> from launcher.spec.model import Resources
    >>> eight = Resources(cpus=96, gpus=8)
    >>> threads(Role(command=("torchrun", "--nproc-per-node", "8", "train.py"), resources=eight))
    12
    """
    words = role.command if command is None else command
    cpus = role.resources.cpus
    return max(1, int(cpus / _processes(role, " ".join(map(str, words)), role.env if environ is None else environ)))


def whole(role: Role) -> int:
    """What launchers gave to each process until 28 November 2026: all CPUs of its rank."""
    return max(1, int(role.resources.cpus))


def _processes(role: Role, command: str, environ: Mapping[str, str]) -> float:
    """How many processes the command starts on one rank; where nothing says it, one for each GPU."""
    if (found := _ACCELERATE.search(command)) is not None:
        return max(1.0, int(found[1]) / role.replicas)
    named = _TORCHRUN.search(command)
    given = named[1] if named is not None else environ.get(PROCESSES, "")
    if given.isdecimal():
        return max(1, int(given))
    if given == "cpu" or (given == "auto" and not role.resources.gpus):
        return max(1.0, role.resources.cpus)  # one for each CPU
    return max(1, role.resources.gpus)
