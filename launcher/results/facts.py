"""The facts of a run besides its metrics: its origin, duration and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from launcher.decoding import Alike, decode_record
from launcher.errors import NotFound
from launcher.parallel import Threads
from launcher.protocol.fold import fold
from launcher.protocol.read import read_run
from launcher.protocol.records import Result
from launcher.results.run_cost import HeldTime, bill, held_times, machine_times
from launcher.spec.hashing import decode_job, work_hash
from launcher.spec.model import ResolvedJob
from launcher.spec.prices.rates import PricedRun, Prices
from launcher.store import layout
from launcher.store.base import Store


class CodeNote(msgspec.Struct, frozen=True):
    """The note of submit about a code overlay."""

    commit: str = ""
    dirty: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one run. `seconds` is the running time summed over the attempts; `cost` is of all attempts, None if
    no price is known or the run is free."""

    run: str
    name: str
    state: str
    reason: str
    message: str
    attempt: int  # the attempt that the result names: its outputs count
    work: str
    environment: str
    git_commit: str
    git_dirty: bool
    data: Mapping[str, str]
    seconds: float
    gpu_hours: float
    cost: float | None
    currency: str
    finished: float | None
    job: ResolvedJob = field(repr=False)
    result: Result | None = field(repr=False)

    @property
    def source(self) -> tuple[str, int]:
        """(run, attempt) whose outputs are this run's. It is another run if this run adopted that run's work."""
        return self.result.source(self.run) if self.result is not None else (self.run, self.attempt)

    @property
    def evaluates(self) -> bool:
        return "results" in self.job.outputs


def load_facts(
    store: Store, runs: Sequence[str], names: Mapping[str, str] | None = None, prices: Prices | None = None
) -> list[Facts]:
    """The facts of runs, read in parallel. `names`: run -> name, from the group. `prices` come from the profile, for
    runs without a price in their budget."""
    names = names or {}
    alike, found = Alike(), []
    with Threads(16) as pool:
        for facts in pool.map(lambda run: _load(store, run, names.get(run, ""), prices or {}), runs):
            alike.share(facts.job)
            if facts.result is not None:
                alike.share(facts.result)
            found.append(facts)
    return found


def _load(store: Store, run: str, name: str, prices: Prices) -> Facts:
    keys = layout.RunKeys(run)
    record = store.read(keys.job)
    if record is None:
        raise NotFound(f"no run `{run}` in {store.url}")
    job = decode_job(record[0])
    ended = store.read(keys.result)
    result = decode_record(ended[1].key, ended[0], Result) if ended is not None else None
    priced = PricedRun.of(job)
    # a finished run of one backend needs no more than its result
    apart = bool(priced.others) or priced.machines
    view = read_run(store, run) if apart or result is None else None
    machines = machine_times(view) if apart and view is not None else ()
    held = held_times(view) if view is not None else ()
    if result is not None:
        state, reason, message, attempt = result.outcome, str(result.reason), result.message, result.attempt
        seconds = result.running
        held = held or (HeldTime(0.0, max(result.held, result.running)),)
    else:
        assert view is not None
        status = fold(view)
        state, reason, message, attempt = status.state, str(status.reason or ""), status.message, status.attempt
        seconds = status.running
    image = job.roles[job.leading].image
    note = _note(store, job.code.digest) if job.code is not None else CodeNote()
    gpus = sum(role.replicas * role.resources.gpus for role in job.roles.values())
    costs = bill(priced, held, machines, prices, store.now())
    return Facts(
        run=run,
        name=name or job.name,
        state=state,
        reason=reason,
        message=message,
        attempt=attempt,
        work=result.work if result is not None and result.work else work_hash(job),
        environment=image.digest or image.environment or image.reference,
        git_commit=note.commit,
        git_dirty=note.dirty,
        data=result.data if result is not None else {},
        seconds=seconds,
        gpu_hours=seconds / 3600 * gpus,
        cost=float(costs.cost) if costs.cost is not None and costs.currency else None,
        currency=costs.currency,
        finished=result.time if result is not None else None,
        job=job,
        result=result,
    )


def _note(store: Store, digest: str) -> CodeNote:
    record = store.read(layout.blob_note(digest))
    if record is None:
        return CodeNote()
    return decode_record(record[1].key, record[0], CodeNote)
