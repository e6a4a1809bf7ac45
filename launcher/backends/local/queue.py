"""The order in which ready runs start, and the place of each waiting run, for users.

A higher `queue_priority` starts first; with equal priority, the earlier submission. A running run is never stopped for
another. The supervisor writes all places into one file, at most once a second; readers look theirs up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from launcher.backends.base import QueueListing, QueuePosition, QueueQuota, QueueState
from launcher.backends.local import entry
from launcher.backends.local.slots import Need, Slots, capacity
from launcher.backends.local.state import QueueNote, StateDir, read
from launcher.errors import BadInput
from launcher.files import replace
from launcher.spec.model import ResolvedJob

PRIORITY = "queue_priority"


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """A run that is ready and has no slots, with the resources it lacks. `after`: who has them, or has them reserved:
    `RUN`, `RUN and 2 more`."""

    run: str
    lacks: str
    after: str = ""


class _Order(msgspec.Struct, frozen=True):
    waiting: tuple[Waiting, ...] = ()


class WaitPosition(NamedTuple):
    """`at` counts from 1."""

    at: int
    of: int
    lacks: str
    after: str = ""


def priority(job: ResolvedJob) -> int:
    """Higher starts first; 0 where the job says nothing."""
    value = job.options.get(PRIORITY, 0)
    return value if isinstance(value, int) else 0


def waiting(slots: Slots, ready: Iterable[tuple[str, Need]]) -> tuple[Waiting, ...]:
    """The waiting runs, in the order in which they will start. What is reserved for earlier runs counts as taken."""
    free = slots.free
    places = []
    holders = {"cpus": _Holders(), "memory": _Holders(), "gpus": _Holders()}

    def hold(run: str, need: Need) -> None:
        for resource, of_it in holders.items():
            if getattr(need, resource) > 0:
                of_it.add(run)

    for run, need in slots.holders.items():
        hold(run, need)
    for run, need in ready:
        lacks = _lacks(need, free)
        places.append(Waiting(run, " and ".join(lacks.values()), str(holders[next(iter(lacks))]) if lacks else ""))
        free = free.minus(need)
        hold(run, need)
    return tuple(places)


class _Holders:
    """Runs that have some of one resource: the first by its name, the others by their number."""

    def __init__(self) -> None:
        self.first, self.others = "", 0

    def add(self, run: str) -> None:
        if self.first:
            self.others += 1
        self.first = self.first or run

    def __str__(self) -> str:
        return f"{self.first} and {self.others} more" if self.others else self.first


def _lacks(need: Need, free: Need) -> dict[str, str]:
    """Resource -> how much of it is short, as a text."""
    short = {}
    if need.cpus > max(free.cpus, 0) + 1e-9:
        short["cpus"] = f"{need.cpus:g} cpu{'' if need.cpus == 1 else 's'}"
    if need.memory > max(free.memory, 0):
        short["memory"] = f"{need.memory / 2**30:.3g} GiB of memory"
    if need.gpus > max(free.gpus, 0):
        short["gpus"] = f"{need.gpus} gpu{'' if need.gpus == 1 else 's'}"
    return short


def write(state: StateDir, runs: tuple[Waiting, ...]) -> None:
    """Writes the order, for users only: so not durable, and a full disk is no error."""
    with contextlib.suppress(OSError):
        replace(state.order, msgspec.json.encode(_Order(runs)), durable=False)


def queue_positions(state: StateDir) -> dict[str, WaitPosition]:
    """Run -> its place, for all runs that wait for slots."""
    order = (read(state.order, _Order) or _Order()).waiting
    return {place.run: WaitPosition(at, len(order), place.lacks, place.after) for at, place in enumerate(order, 1)}


def describe_position(place: WaitPosition) -> str:
    """`2nd of 5, waits for 2 cpus, after RUN`."""
    after = f", after {place.after}" if place.after else ""
    return f"{ordinal(place.at)} of {place.of}, waits for {place.lacks or 'slots'}{after}"


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def listing(state: StateDir, options: Mapping[str, object]) -> QueueListing:
    """The one queue of this machine, which the local and the docker backend share. `options`: this machine's slots."""
    room = capacity(options)
    used = Need(0.0, 0, 0)
    positions = queue_positions(state)
    waiting: list[str] = []
    running = 0
    problems = []
    for run in state.queued():
        note = read(state.note(run), QueueNote) or QueueNote("queued")
        if note.phase in ("queued", "waiting"):
            waiting.append(run)
            continue
        running += 1
        try:
            need = room.need(entry.parse(state.entry(run).read_text()).job)
        except FileNotFoundError:  # it has ended since
            running -= 1
        except BadInput as error:
            problems.append(f"{state.entry(run)}: {error}")
        else:
            used = Need(used.cpus + need.cpus, used.memory + need.memory, used.gpus + need.gpus)
    ours = [QueuePosition(run, positions[run].at if run in positions else None) for run in waiting]
    ours.sort(key=lambda each: (each.position is None, each.position or 0, each.run))
    quotas = (
        QueueQuota("", "cpu", room.cpus, used.cpus),
        QueueQuota("", "memory", float(room.memory), float(used.memory)),
        QueueQuota("", "gpu", float(len(room.gpus)), float(used.gpus)),
    )
    queue = QueueState(
        name="local",
        backend="local",
        place=str(state.path),
        detail="" if state.held() or not (waiting or running) else "its supervisor does not run; any verb starts it",
        waiting=len(waiting),
        running=running,
        ours=tuple(ours),
        quotas=quotas,
    )
    return QueueListing((queue,), tuple(problems))
