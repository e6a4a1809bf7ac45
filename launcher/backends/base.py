"""What a backend must do (docs/reference/extending.md). `render` is pure; every other method asks the backend and may
raise Unreachable. What the launcher must know of a backend before it is loaded is in `launcher/spec/backends.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from launcher.errors import BadInput
from launcher.spec.backends import backends, traits
from launcher.spec.model import ResolvedJob

if TYPE_CHECKING:
    from launcher.protocol.records import Placement


class Rendered(msgspec.Struct, frozen=True):
    """What `submit` sends and `launcher render` prints.

    documents  file name -> text of one object, as a rule YAML
    objects    run id -> name of the file that carries the run
    warnings   lines for the user; they stop nothing
    """

    documents: Mapping[str, str]
    objects: Mapping[str, str]
    warnings: tuple[str, ...] = ()


class Handle(msgspec.Struct, frozen=True):
    """What a backend calls the object of a run.

    name         of the object on the backend
    fingerprint  the run's hash, as the object carries it
    place        what else tells the object from others: namespace and uid, the file of a queue
    """

    run: str
    backend: str
    name: str
    fingerprint: str
    place: Mapping[str, str] = {}


class BilledMachine(msgspec.Struct, frozen=True):
    """A machine that costs money now. `since`: when billing began, in seconds since the epoch; 0: it has not begun yet,
    or nobody knows. `cents`: an hour, by the backend's own list; 0: it does not say. `key`: what the run's events call
    it, where that is not its id. `bound`: `since` is when it was launched, and its billing began later, if anything."""

    id: str
    member: str
    type: str = ""
    region: str = ""
    cents: int = 0
    since: float = 0.0
    key: str = ""
    bound: bool = False


class BackendObservation(msgspec.Struct, frozen=True):
    """The state of one of a backend's objects.

    active    it runs, or may still start a process
    phase     for users: queued, running, ended, ...
    reason    why it waits or ended: a value of launcher.reasons.Reason, or ""
    evidence  the backend's own words for the reason
    cursor    where `watch` can go on after this observation
    made      when the object was created, in seconds since the epoch; 0: unknown
    billed    it costs money, active or not: somebody must end it
    overdue   why it must be ended whatever its run does: a machine past its deadline; "": it may go on
    applied   somebody else than `launcher submit` applies the object (GitOps), and may make it again when it is gone
    machines  where a run has machines of its own: those that are billed
    """

    handle: Handle
    active: bool
    phase: str = ""
    reason: str = ""
    evidence: str = ""
    cursor: str = ""
    made: float = 0.0
    billed: bool = False
    overdue: str = ""
    applied: bool = False
    machines: tuple[BilledMachine, ...] = ()


class Backend(Protocol):
    @property
    def place(self) -> str:
        """The name of this queue or cluster for the user of this machine: a path, or a context and a namespace."""
        ...

    def render(self, group: Sequence[ResolvedJob]) -> Rendered:
        """The objects of these runs. Pure: no network, no clock, no randomness; the same bytes on any machine. Raises
        BadInput for a job that this backend cannot run."""
        ...

    def submit(self, rendered: Rendered, group: Sequence[ResolvedJob]) -> Mapping[str, Handle]:
        """Creates the objects; run id -> handle. May be called again after any failure: an object of this name with the
        same fingerprint that runs the same is taken as created, any other raises Conflict."""
        ...

    def look_up(self, run: str) -> BackendObservation | None:
        """The state of a run's object; None where the backend has no such object."""
        ...

    def watch(self, handles: Collection[Handle], cursor: str | None) -> Iterator[BackendObservation]:
        """Every change of these runs, in one stream, which ends when no run is active. The first observation of a run
        is its present state. `cursor`: that of an earlier observation, to go on from there."""
        ...

    def logs(self, handle: Handle, role: str, rank: int, previous: bool) -> Iterator[bytes]:
        """The output of a rank, as the backend has it, followed until the run ends. `previous`: of the start before the
        last one. Raises NotFound."""
        ...

    def cancel(self, handles: Collection[Handle]) -> None:
        """Ends the processes of these runs. The caller has written cancel.json before, so no process starts again."""
        ...

    def mine(self) -> Iterator[BackendObservation]:
        """The state of every object that Slipway created here."""
        ...

    def here(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        """Whether the run belongs to this very queue or cluster. Several can share a store, and only its own knows that
        no process of a run will start again. `placement`: of a rank of the highest attempt, None before the first
        attempt; `seen`: the answer of `look_up`."""
        ...

    def dead(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        """Whether the process with this claim has certainly ended, although it wrote no exit and its last heartbeat may
        be recent. A local queue knows that. A cluster answers False: a node that it cannot reach may still run it."""
        ...


@runtime_checkable
class Entered(Protocol):
    """A backend that can run a command beside a member: `launcher exec`."""

    def execute(self, run: str, member: str, command: Sequence[str], *, tty: bool) -> list[str]:
        """The argv of a program on this machine that runs the command. Raises NotFound when the member does not run."""
        ...


@runtime_checkable
class Forwards(Protocol):
    """A backend that can bring ports of a member to this machine: `launcher forward`."""

    def forward(self, run: str, member: str, ports: Sequence[tuple[int, int]]) -> list[str]:
        """The argv of a program that forwards the ports until it ends. `ports`: (port here, port of the member). Raises
        NotFound when the member does not run."""
        ...


class QueueQuota(msgspec.Struct, frozen=True):
    """How much of a resource a queue may give out, summed over the machines of one kind. CPUs in cores, memory and disk
    in bytes, other resources by number.

    flavor    Kueue's ResourceFlavor, a kind of node; "" on this machine
    used      by runs that hold it, what is borrowed included
    borrowed  the part of `used` that belongs to other queues of the cohort
    """

    flavor: str
    resource: str
    quota: float
    used: float
    borrowed: float = 0.0

    @property
    def free(self) -> float:
        return max(0.0, self.quota - self.used)


class QueueCheck(msgspec.Struct, frozen=True):
    """What a queue asks besides its quota. `state`: of the queue's own, active or inactive, "" where it is unknown; of
    a run, the backend's word."""

    name: str
    state: str
    message: str = ""


class QueuePosition(msgspec.Struct, frozen=True):
    """A run of ours that waits in a queue. `position` counts from 1, other users' jobs included; None: unknown, or it
    has its quota and waits for its `checks` alone."""

    run: str
    position: int | None
    checks: tuple[QueueCheck, ...] = ()


class QueueState(msgspec.Struct, frozen=True):
    """A queue and what is in it.

    namespace      of Kueue's LocalQueue; "" on this machine
    cluster_queue  Kueue's ClusterQueue, whose quota it uses; "" on this machine
    state          open; held: lets nothing in; draining: also takes out what runs; inactive: the backend cannot use it
    detail         the backend's own words for the state
    waiting        jobs that wait in it, of anybody
    running        jobs that hold a part of its quota; of the cluster queue, those of this queue only
    ours           the waiting runs of Slipway that this login can see, in their order
    checks         what it asks of each job besides quota
    """

    name: str
    backend: str
    place: str
    namespace: str = ""
    cluster_queue: str = ""
    cohort: str = ""
    state: str = "open"
    detail: str = ""
    waiting: int = 0
    running: int = 0
    ours: tuple[QueuePosition, ...] = ()
    quotas: tuple[QueueQuota, ...] = ()
    checks: tuple[QueueCheck, ...] = ()


class QueueListing(msgspec.Struct, frozen=True):
    """`problems`: a line for each thing that could not be read, with the right that is missing."""

    queues: tuple[QueueState, ...]
    problems: tuple[str, ...] = ()


@runtime_checkable
class Queues(Protocol):
    """A backend with queues that can be listed: `launcher queues`."""

    def queues(self) -> QueueListing:
        """The queues of this place. Raises Unreachable."""
        ...


@runtime_checkable
class StopsQueues(Protocol):
    """A backend whose queues can be stopped, so that they let nothing in, and resumed."""

    def stop_queue(self, name: str, *, cluster_queue: bool, drain: bool) -> None:
        """`cluster_queue`: the one that several queues share. `drain`: also take out what runs. Raises NotFound, and
        BadInput where the login lacks the right."""
        ...

    def resume_queue(self, name: str, *, cluster_queue: bool) -> None:
        """Lets jobs in again. Raises as `stop_queue`."""
        ...


class CheckResult(msgspec.Struct, frozen=True):
    """One line of `launcher doctor`. `state`: ok, warning, failed, or unused for
    what is not set up here and may be; `fix`: what to do about it; `code`: the exit code
    of a failure."""

    check: str
    state: str
    detail: str
    fix: str = ""
    code: int = 0


def backend_of(job: ResolvedJob, options: Mapping[str, object]) -> Backend:
    """The backend that a job runs on. `options`: this machine's settings; how this machine reached the run before comes
    before them, and the job's own options come first."""
    from launcher.userdata.cluster_contexts import reached

    return backend(job.backend, {"store": job.store, **options, **reached(job), **job.options})


def backend(name: str, options: Mapping[str, object]) -> Backend:
    """The backend of that name, its module imported. Raises BadInput where it is not installed, or its SDK is not."""
    if name not in backends():
        raise BadInput(f"backend `{name}` is not installed here; installed: {', '.join(sorted(backends()))}")
    backend_traits = traits(name)
    extra = backend_traits.extra
    try:
        loaded: Backend = import_module(backend_traits.module).make(options)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("launcher", "training", "eval")):
            raise
        if extra is None:  # of another distribution, which knows what it needs
            raise BadInput(f"backend `{name}` cannot be loaded: no module `{error.name}`; install it") from None
        raise BadInput(
            f"backend `{name}` needs its SDK beside launcher, the extra `{extra}` (missing: {error.name})"
        ) from None
    return loaded


def renderer(name: str, options: Mapping[str, object]) -> Callable[[Sequence[ResolvedJob]], Rendered]:
    """A backend's `render`. Where the backend has a module `render`, only that module is loaded, not the code that
    submits."""
    from importlib.util import find_spec

    module_name = f"{traits(name).module}.render"
    try:
        spec = find_spec(module_name)
    except ModuleNotFoundError:  # `backend` raises an error that says what to install
        spec = None
    if spec is None:
        return backend(name, options).render
    pure: Callable[[Sequence[ResolvedJob]], Rendered] = import_module(module_name).render
    return pure
