"""Which runs may start: they share the CPUs, memory and GPUs of this machine, first come, first served.

Ready runs are taken in the order of priority, then of submission. The first one that does not fit waits, and what it
needs is reserved: a later run may start only if it fits into the rest and takes no resource that is short. So no later
run delays a waiting one, and within a priority none starves. A run that asks for more CPUs than there are gets all of
them (it runs slower). A run that asks for more memory or GPUs than there are is refused at submission.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from launcher.errors import BadInput
from launcher.spec.model import ResolvedJob


class Need(msgspec.Struct, frozen=True):
    """What all ranks of a run need together. Memory in bytes."""

    cpus: float
    memory: int
    gpus: int

    def fits(self, free: Need) -> bool:
        """Whether the need fits into `free`. A resource that is not needed is never short."""
        return all(
            need <= 0 or need <= there + 1e-9
            for need, there in ((self.cpus, free.cpus), (self.memory, free.memory), (self.gpus, free.gpus))
        )

    def minus(self, other: Need) -> Need:
        return Need(self.cpus - other.cpus, self.memory - other.memory, self.gpus - other.gpus)


class Capacity(msgspec.Struct, frozen=True):
    """The resources of this machine that runs may take. `gpus`: ids as CUDA_VISIBLE_DEVICES takes them."""

    cpus: float
    memory: int
    gpus: tuple[str, ...] = ()

    def need(self, job: ResolvedJob) -> Need:
        """The need of a whole run, its CPUs capped at the capacity."""
        roles = job.roles.values()
        cpus = sum(role.resources.cpus * role.replicas for role in roles)
        memory = sum((role.resources.memory or 0) * role.replicas for role in roles)
        gpus = sum(role.resources.gpus * role.replicas for role in roles)
        return Need(min(cpus, self.cpus), memory, gpus)

    def shortage(self, job: ResolvedJob) -> str:
        """Why a run can never start here; empty when it can."""
        need = self.need(job)
        if need.gpus > len(self.gpus):
            return f"it needs {need.gpus} GPUs and this machine has {len(self.gpus)}"
        if need.memory > self.memory:
            return f"it needs {need.memory / 2**30:.1f} GiB of memory and this machine has {self.memory / 2**30:.1f}"
        return ""


def capacity(options: Mapping[str, object]) -> Capacity:
    """The profile's values (`local: {cpus:, memory:, gpus:}`); the machine is asked for those that are not set.

    `gpus` is a number (ids 0 to n-1) or a list of ids.
    """
    cpus, memory, gpus = options.get("cpus"), options.get("memory"), options.get("gpus")
    if gpus is None:
        ids: tuple[str, ...] = _visible_gpus()
    elif isinstance(gpus, int):
        ids = tuple(map(str, range(gpus)))
    elif isinstance(gpus, list | tuple):
        ids = tuple(map(str, gpus))
    else:
        raise BadInput(f"local.gpus: {gpus!r} is neither a number nor a list of ids")
    return Capacity(
        cpus=float(str(cpus)) if cpus is not None else float(len(os.sched_getaffinity(0))),
        memory=int(str(memory)) if memory is not None else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=ids,
    )


def _visible_gpus() -> tuple[str, ...]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(part.strip() for part in visible.split(",") if part.strip() not in ("", "-1"))
    import subprocess  # only a job with GPUs needs it

    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ()
    return tuple(str(k) for k, line in enumerate(listed.stdout.splitlines()) if line.startswith("GPU "))


class Slots(msgspec.Struct):
    """Which run holds which slots. Not thread-safe: only the supervisor uses it."""

    capacity: Capacity
    holders: dict[str, Need] = {}
    gpus: dict[str, tuple[str, ...]] = {}  # run -> the ids it holds

    @property
    def free(self) -> Need:
        free = Need(self.capacity.cpus, self.capacity.memory, len(self.capacity.gpus))
        for need in self.holders.values():
            free = free.minus(need)
        return free

    def choose(self, ready: Iterable[tuple[str, Need]]) -> list[str]:
        """The runs that may start now. `ready`: run and need, in the order of starting."""
        free = self.free
        chosen = []
        for run, need in ready:
            if need.fits(free):
                chosen.append(run)
            free = free.minus(need)  # taken, or reserved for a waiting run
        return chosen

    def take(self, run: str, need: Need, held: Sequence[str] | None = None) -> tuple[str, ...]:
        """Gives a run its slots and returns its GPU ids. `held`: the ids that an adopted run already holds."""
        if held is None:
            taken = {gpu for ids in self.gpus.values() for gpu in ids}
            held = [gpu for gpu in self.capacity.gpus if gpu not in taken][: need.gpus]
        self.holders[run] = need
        self.gpus[run] = tuple(held)
        return self.gpus[run]

    def release(self, run: str) -> None:
        self.holders.pop(run, None)
        self.gpus.pop(run, None)
