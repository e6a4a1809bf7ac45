"""What only some backends can do: a protocol for each, and a verb asks with isinstance. Those that a user calls by name
(exec, forward, queues) are in `launcher.backends.base`, which docs/reference/extending.md shows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from launcher.backends.base import BackendObservation, Handle, backend_of
from launcher.spec.backends import traits
from launcher.spec.model import ResolvedJob

if TYPE_CHECKING:
    from launcher.protocol.records import Placement
    from launcher.store import Store


@runtime_checkable
class Checks(Protocol):
    """A backend that can refuse jobs before anything is written."""

    def check(self, group: Iterable[ResolvedJob]) -> None: ...


@runtime_checkable
class Finds(Protocol):
    """A backend that can look up many runs at once."""

    def find(self, runs: Collection[str]) -> Mapping[str, Handle]:
        """The handles of the runs that it has. Raises Conflict for an object that does not run what its jobs say."""
        ...


@runtime_checkable
class ComparesEnded(Protocol):
    """A backend that keeps the objects of runs that have ended, where others may have created or changed them."""

    def compare_ended(self, runs: Collection[str]) -> None:
        """Raises Conflict for an object that did not run what its jobs say: the result in the store is not theirs. An
        object that is gone says nothing. Raises Unreachable where objects may not be read."""
        ...


class CarriedRun(msgspec.Struct, frozen=True):
    """A run that an object of a backend carries.

    job    as the object carries it: it has the run's hash, and the object runs what it says; None: the object does not
    fault  why `job` is None, and what to do about it
    place  what else tells the object from others, as in its handle
    """

    run: str
    job: ResolvedJob | None
    fault: str = ""
    place: Mapping[str, str] = {}


@runtime_checkable
class Carries(Protocol):
    """A backend whose objects carry their jobs, so that others than `launcher submit` can create them (GitOps)."""

    def carried_with(self, run: str) -> list[CarriedRun]:
        """All runs of the object that carries `run`; none where there is no such object."""
        ...

    def carried(self, wanted: Callable[[str], bool], store: str) -> Iterator[CarriedRun]:
        """The runs for which `wanted` is true of all objects that name `store`, in a few requests for any number of
        objects."""
        ...

    def kept(self, run: str, placements: Collection[Placement]) -> bool:
        """Whether a GitOps tool manages the run's object: the tool creates the object again after a deletion.

        placements  of the run's processes

        False also where no tool can be asked. Raises SlipwayError.
        """
        ...


@runtime_checkable
class Spread(Protocol):
    """A backend whose objects may be in a part of it that this machine does not look at: another namespace."""

    def elsewhere(self, runs: Collection[str]) -> Mapping[str, str]:
        """Run -> a line for the user, for the runs that are in another part of the backend."""
        ...


@runtime_checkable
class KnowsImages(Protocol):
    """A backend whose images may be replaced under their names."""

    def images(self, job: ResolvedJob) -> Mapping[str, str]:
        """Role -> the id of the image that a start now would run, where the name can move. Raises Unreachable."""
        ...


def images_of(job: ResolvedJob, options: Mapping[str, object]) -> Mapping[str, str]:
    """`KnowsImages.images` of the job's backend; empty where it does not know any. Raises as `backend_of`."""
    if not traits(job.backend).spawners:
        return {}
    made = backend_of(job, options)
    return made.images(job) if isinstance(made, KnowsImages) else {}


@runtime_checkable
class EndsDuplicates(Protocol):
    """A backend on which a lost answer may start a member twice. The second does no work, but it is billed."""

    def end_duplicates(self, *, plan: bool) -> Iterator[tuple[str, str]]:
        """Ends every machine that does no work because another one of the same member does; yields (run, what was
        ended and why). `plan`: ends nothing. Raises Unreachable."""
        ...


@runtime_checkable
class Strands(Protocol):
    """A backend that creates several objects for a run, one after another; `look_up` answers for the last of them."""

    def stranded(self, run: str, job: ResolvedJob) -> BackendObservation | None:
        """What is left of a run that `look_up` does not find and that can never begin: one of its objects has ended,
        and its name is used up, before the last one was created. None if it may begin. Raises Unreachable."""
        ...


@runtime_checkable
class SentParts(Protocol):
    """A backend on which a launcher that dies between two requests leaves something that `look_up` does not find."""

    def part(self, run: str, job: ResolvedJob) -> BackendObservation | None:
        """What is there of the run, or may still come. `cancel` ends it by this handle, and asks again afterwards. None
        if there is nothing. Raises Unreachable."""
        ...


@runtime_checkable
class Renews(Protocol):
    """A backend whose runs need something anew from time to time, which only a reaper can give them."""

    def renew(self, *, plan: bool) -> Iterator[tuple[str, str, bool]]:
        """Gives it to every run for which it is time; yields (run, what was done, or why it could not be; whether it
        was). `plan`: gives nothing. Raises Unreachable."""
        ...


@runtime_checkable
class EndsUnused(Protocol):
    """A backend whose account may hold what people made for runs, and what they left of it."""

    def end_unused(self, store: Store, *, plan: bool) -> Iterator[tuple[str, str]]:
        """Deletes what is marked as this store's and was found unused twice; yields (stopped | unknown | unreachable,
        what and why). `plan`: changes nothing. Raises Unreachable."""
        ...


class BilledDisk(msgspec.Struct, frozen=True):
    """A disk of the account that costs money now, and that no run owns. `size`: bytes; None: nobody says."""

    id: str
    name: str
    region: str
    size: int | None
    in_use: bool


@runtime_checkable
class BillsDisks(Protocol):
    """A backend whose provider bills disks that outlive the machines."""

    def disks(self) -> Sequence[BilledDisk]:
        """All disks of the account. Raises Unreachable."""
        ...


class BilledOther(msgspec.Struct, frozen=True):
    """Machines that cost money now and that no run of ours has: somebody else's, or what was left behind.

    what   for users: what it is, and its name
    type   of a machine
    count  machines of this type that are billed; 0: none is, but a disk or an address of it may be
    cents  an hour of one, by the backend's own list; 0: it does not say
    since  when billing began, in seconds since the epoch; 0: nobody knows
    why    what is known of its end, for users
    """

    what: str
    type: str
    region: str
    count: int
    cents: int = 0
    since: float = 0.0
    why: str = ""


@runtime_checkable
class BillsOthers(Protocol):
    """A backend whose account may have machines that no run of ours started."""

    def others(self) -> Sequence[BilledOther]:
        """All of them. Raises Unreachable."""
        ...
