"""The resolved job: immutable and complete; its canonical JSON is job.json.

Fields at their default are left out of the canonical form, so a field added later changes no old hash.
All sizes are bytes, all durations seconds.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

SCHEMA = 1


class Frozen(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of every structure that is written to job.json."""


class Image(Frozen, frozen=True):
    """The image of a rank. Where none runs, `environment` identifies the software instead."""

    reference: str = ""  # the name to pull: registry/name[:tag]; on `local` as the user wrote it
    digest: str = ""  # sha256:... of the image
    # on `local`: sha256 over the lock and the installed source; of a role that runs in a Python environment of its own:
    # `sha256:...` of the archive in the store from which a machine makes it
    environment: str = ""


class Resources(Frozen, frozen=True):
    """The resources of one rank."""

    cpus: float = 1.0
    memory: int | None = None
    gpus: int = 0
    gpu: str | None = None
    shm: int | None = None
    disk: int | None = None


class Ready(Frozen, frozen=True):
    """A role is ready when this HTTP path answers 2xx on the named port."""

    http: str
    port: str = "http"


class Role(Frozen, frozen=True):
    """A kind of container in the run. A job without roles has a single role, `main`."""

    command: tuple[str, ...]
    image: Image = Image()
    leader: bool = False
    replicas: int = 1
    env: dict[str, str] = {}
    resources: Resources = Resources()
    ports: dict[str, int] = {}  # 0: the runtime picks a free one
    ready: Ready | None = None
    needs: tuple[str, ...] = ()
    restarts: int = 0


class Code(Frozen, frozen=True):
    """The overlay of the working tree, content-addressed: objects/sha256/<digest>, a tar."""

    digest: str


class Input(Frozen, frozen=True):
    """One input. Exactly one of `url`, `work`, `works` and `run` is set.

    url    any URL or path, with its digest when the user pinned one
    work   the output of another job, known by that job's work hash
    works  the same of every variant of a matrix job: a folder per variant
    run    the output of an existing run
    """

    url: str | None = None
    digest: str | None = None
    work: str | None = None
    works: dict[str, str] = {}
    run: str | None = None
    output: str | None = None
    step: str | None = None  # latest | best | N, for checkpoints
    job: str | None = None  # the upstream job's name in the file; only displayed, in no hash


class Output(Frozen, frozen=True):
    """One folder under $SLIPWAY_OUTPUTS."""

    kind: Literal["files", "checkpoints"] = "files"
    sync: Literal["end", "live"] = "end"
    match: str = "*"  # checkpoints: the pattern of their folders
    keep: int = 0  # checkpoints: how many are kept; 0 keeps all
    done: str | None = None  # checkpoints: the file that marks a folder as complete


# seconds of a run that its budget keeps back: providers bill full minutes, and a machine takes a while to end
BUDGET_MARGIN: Final = 60.0


class Budget(Frozen, frozen=True):
    """`hourly`, `listed`: the price of the whole run per hour in the same currency, from the profile or from the table
    of list prices; the other one is 0. A list price is in no hash: a new table makes no other run of the same job."""

    amount: float
    currency: str = "USD"
    hourly: float = 0.0
    listed: float = 0.0

    @property
    def price(self) -> float:
        return self.hourly or self.listed


class Limits(Frozen, frozen=True):
    deadline: float | None = None  # running time, summed over the attempts
    start_deadline: float | None = None  # waiting time before the first attempt
    retries: int = 0
    retry_on: tuple[str, ...] = ()
    budget: Budget | None = None
    grace: float = 30.0  # from SIGTERM to SIGKILL
    gpu_idle: float | None = None  # the run ends when the GPUs of a rank do nothing for so long

    @property
    def paid_seconds(self) -> float | None:
        """Seconds for which the attempts together may hold their machines before the budget ends the run; None without
        a budget. Kept back: the time to stop, as long again to save, and BUDGET_MARGIN."""
        if self.budget is None or not self.budget.price:
            return None
        return self.budget.amount / self.budget.price * 3600 - 2 * self.grace - BUDGET_MARGIN


class Timing(Frozen, frozen=True):
    """The protocol's clocks (docs/explanation/protocol.md, The records). fence + grace < stale, and beat
    well below both."""

    beat: float = 15.0
    stale: float = 900.0
    fence: float = 720.0


class Alternative(Frozen, frozen=True):
    """Another backend on which the run may go on, with what its block and the profile say of it: as in ResolvedJob."""

    backend: str
    options: dict[str, Any] = {}
    secrets: dict[str, str] = {}


class ResolvedJob(Frozen, frozen=True, weakref=True):
    """A run. `launcher.spec.hashing` gives its work hash, run hash and id, and remembers the run hash by identity."""

    name: str
    roles: dict[str, Role]
    store: str
    backend: str
    schema: int = SCHEMA
    config: dict[str, Any] | None = None
    code: Code | None = None
    inputs: dict[str, Input] = {}
    outputs: dict[str, Output] = {}
    secrets: dict[str, str] = {}  # name -> the place that holds it (never its value)
    limits: Limits = Limits()
    labels: dict[str, str] = {}
    variant: dict[str, Any] = {}  # the matrix values of this run; only displayed
    options: dict[str, Any] = {}  # the backend's own block, merged with the profile's
    fresh: int = 0
    resume: str | None = None
    # the packages (as Image.environment) or the image's id that made the checkpoints of `resume`, where they are others
    # than this run's and a retry was told to go on from them
    resume_made_with: str = ""
    timing: Timing = Timing()
    store_access: bool = False  # the command gets the store's credentials
    alternatives: tuple[Alternative, ...] = ()  # the job's other backends; see `at_turn`
    turn: int = 0  # which of its backends `backend` is, in the order of the job; 0 in job.json

    @property
    def leading(self) -> str:
        """The name of the leading role."""
        if len(self.roles) == 1:
            return next(iter(self.roles))
        return next(name for name, role in self.roles.items() if role.leader)

    def blobs(self) -> set[str]:
        """The objects of the store, as bare hex, that this run needs beside its inputs: the overlay of its code, the
        archives of its Python environments."""
        code = {self.code.digest} if self.code is not None else set()
        named = code | {role.image.environment for role in self.roles.values() if ":" in role.image.environment}
        return {digest.removeprefix("sha256:") for digest in named}

    def members(self) -> tuple[str, ...]:
        """Every `<role>-<rank>`, the leader first, then by role and rank."""
        first = self.leading
        order = [first, *sorted(name for name in self.roles if name != first)]
        return tuple(f"{name}-{rank}" for name in order for rank in range(self.roles[name].replicas))


# A job that names several backends: `backend: [kubernetes, lambda]`. In job.json, `backend`, `options` and `secrets`
# are those of the first, and `alternatives` has the others in their order. What another backend renders and carries is
# the same run seen from there: `at_turn` exchanges the first with that alternative and says so in `turn`. Both have the
# same run hash and id, because `as_written` is what is hashed.


def named_backends(value: str | list[str] | None) -> tuple[str, ...]:
    """The backends that a job file names: `backend`, as it was checked."""
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def backend_order(job: ResolvedJob) -> tuple[str, ...]:
    """The names of a job's backends in the order in which it may use them."""
    written = as_written(job)
    return (written.backend, *(other.backend for other in written.alternatives))


def as_written(job: ResolvedJob) -> ResolvedJob:
    """The job as job.json has it: the first backend's turn."""
    return _with_backend(job, job.turn, 0) if job.turn else job


def at_turn(job: ResolvedJob, turn: int) -> ResolvedJob:
    """The job as the backend `turn` (0: the first) runs it. Raises IndexError for one that the job does not name."""
    return _with_backend(as_written(job), turn, turn) if turn else as_written(job)


def _with_backend(job: ResolvedJob, place: int, turn: int) -> ResolvedJob:
    other = job.alternatives[place - 1]
    mine = Alternative(job.backend, job.options, job.secrets)
    others = (*job.alternatives[: place - 1], mine, *job.alternatives[place:])
    return msgspec.structs.replace(
        job, backend=other.backend, options=other.options, secrets=other.secrets, alternatives=others, turn=turn
    )
